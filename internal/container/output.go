package container

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// outputs is the folder below /mnt/data in which each call with an $OUTPUT_DIR has its own.
const outputs = "outputs"

// makeOutputDir makes a new, empty folder for the results of one call and returns its path inside. It is an ordinary folder of the
// container: what lies deeper in it, or elsewhere, is kept like all files.
func (e *entry) makeOutputDir(ctx context.Context) (string, error) {
	vol, err := e.attach(ctx)
	if err != nil {
		return "", err
	}
	var b [6]byte
	rand.Read(b[:]) // never fails (crypto/rand); a program cannot have put anything in the place
	id := hex.EncodeToString(b[:])
	if err := vol.makeDir(outputs); err == nil || os.IsExist(err) {
		if err := vol.makeDir(outputs + "/" + id); err == nil {
			return path.Join(dataMount, outputs, id), nil
		}
	}
	// A program has a file of that name, or has locked the folder.
	if err := vol.makeDir(outputs + "-" + id); err != nil {
		return "", err
	}
	return path.Join(dataMount, outputs+"-"+id), nil
}

// makeDir makes a folder that programs can write to. A program cannot have it made or changed outside of the volume.
func (vol *volume) makeDir(name string) error {
	if err := vol.data.Mkdir(name, 0o755); err != nil {
		return err
	}
	f, err := vol.data.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if os.Geteuid() == 0 && f.Chown(programID, programID) == nil {
		return f.Chmod(0o755)
	}
	return f.Chmod(0o777)
}

// dropOutputDir removes the folder of a call that has left nothing in it.
func (e *entry) dropOutputDir(dir string) {
	e.files.mu.Lock()
	defer e.files.mu.Unlock()
	rel, ok := inData(dir)
	if !ok || e.files.vol == nil {
		return
	}
	for p := rel; p != "." && e.files.vol.removeDir(p); p = filepath.Dir(p) {
	}
}

// removeDir removes a folder if it is empty.
func (vol *volume) removeDir(name string) bool {
	info, err := vol.data.Lstat(name)
	return err == nil && info.IsDir() && vol.data.Remove(name) == nil
}

// edited puts what the editor did into the outcome of its call.
func edited(out *tool.Outcome, call tool.Call, r *sandbox.EditResult) {
	if call.Tool != tool.Edit {
		return
	}
	args, _ := tool.ParseEdit(call.Code) // it was read before
	out.Path, out.Outputs = args.Path, nil
	switch {
	case r == nil: // it was killed, or its time was up
		out.ErrorCode = turn.ErrorUnavailable
		if out.Status == tool.StatusTimeout {
			out.ErrorCode = turn.ErrorTime
		}
		out.Outputs = []turn.Output{{Stream: sandbox.Stderr, Text: "the editor failed: " + out.Error}}
		return
	case r.Error != "":
		out.Status, out.ErrorCode = tool.StatusError, r.Error
		out.Outputs = []turn.Output{{Stream: sandbox.Stderr, Text: r.Message}}
		return
	}
	out.Edit = &turn.Edit{
		Command: args.Command, FileType: r.FileType, Content: r.Content, StartLine: r.StartLine, NumLines: r.NumLines, TotalLines: r.TotalLines,
		Updated: r.Updated, OldStart: r.OldStart, OldLines: r.OldLines, NewStart: r.NewStart, NewLines: r.NewLines, Hunk: r.Hunk,
	}
	if len(r.Data) > 0 {
		out.Edit.Content = base64.StdEncoding.EncodeToString(r.Data)
	}
	if r.FileType == "image" {
		out.Outputs = []turn.Output{{MIME: r.MIME, Data: r.Data}}
	}
}
