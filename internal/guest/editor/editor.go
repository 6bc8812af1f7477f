// Package editor is the edit tool inside a sandbox: it views and changes one file for a call. It is the guest's own code, but runs as the
// program's user and in a process of its own, so that nothing which a program has put in a file's place (links, FIFOs, devices, a race)
// gives more than the program has itself; and it needs neither Python nor a shell in the image. Only package guest may import it.
package editor

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

const (
	// maxFile is the largest file that is viewed or changed, maxContent how much of a text one view returns.
	maxFile    = 16 << 20
	maxContent = 1 << 20
	// maxMedia is the largest image or PDF: models' servers take 5 MB of base64.
	maxMedia = 3700 << 10
)

// Env is where a call is done.
type Env struct {
	// Dir is the working directory. Lookup returns variables; Map translates an absolute path, nil for none.
	Dir    string
	Lookup func(name string) (string, bool)
	Map    func(string) string
}

// failure is an error for the model, with its code.
type failure struct{ code, text string }

func (f *failure) Error() string { return f.text }

func invalid(format string, args ...any) error {
	return &failure{proto.EditInvalid, fmt.Sprintf(format, args...)}
}

// Run does call.
func Run(call proto.EditCall, env Env) proto.EditResult {
	f := &file{shown: call.Path, path: env.resolve(call.Path)}
	var r proto.EditResult
	var err error
	switch call.Command {
	case "view":
		r, err = f.view(call.ViewRange)
	case "create":
		r, err = f.create(text(call.FileText))
	case "str_replace":
		r, err = f.replace(text(call.OldStr), text(call.NewStr))
	case "insert":
		line := 0
		if call.InsertLine != nil {
			line = *call.InsertLine
		}
		r, err = f.insert(line, text(call.InsertText))
	default:
		err = invalid("there is no command %.40q: the commands are view, create, str_replace and insert", call.Command)
	}
	if err != nil {
		return f.failed(err)
	}
	return r
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// resolve makes a path absolute. Variables that are not set stay as they are written, since a file may be called so.
func (e Env) resolve(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		if home, ok := e.Lookup("HOME"); ok {
			path = home + path[1:]
		}
	}
	path = expand(path, e.Lookup)
	if !filepath.IsAbs(path) {
		return filepath.Join(e.Dir, path)
	}
	if e.Map != nil {
		return e.Map(filepath.Clean(path))
	}
	return filepath.Clean(path)
}

func expand(s string, lookup func(string) (string, bool)) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			return b.String() + s
		}
		b.WriteString(s[:i])
		s = s[i:]
		name, length := variable(s)
		value, ok := lookup(name)
		if name == "" || !ok {
			value = s[:length]
		}
		b.WriteString(value)
		s = s[length:]
	}
}

// variable is the name in "$NAME" or "${NAME}" at the start of s, and how long that is; "" and 1 where none begins.
func variable(s string) (name string, length int) {
	braced := strings.HasPrefix(s, "${")
	start := 1
	if braced {
		start = 2
	}
	end := start
	for end < len(s) && (s[end] == '_' || s[end] >= 'a' && s[end] <= 'z' || s[end] >= 'A' && s[end] <= 'Z' ||
		end > start && s[end] >= '0' && s[end] <= '9') {
		end++
	}
	if end == start || braced && (end == len(s) || s[end] != '}') {
		return "", 1
	}
	if braced {
		return s[start:end], end + 1
	}
	return s[start:end], end
}

// file is the file of a call: shown is how the model calls it.
type file struct{ shown, path string }

// failed puts an error into words. The system's own would name the file by its path on the way to the call's.
func (f *file) failed(err error) proto.EditResult {
	fail, ok := errors.AsType[*failure](err)
	if !ok {
		fail = &failure{proto.EditInvalid, ""}
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			fail.code, fail.text = proto.EditNotFound, "there is no "+f.shown
		case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
			fail.text = f.shown + " may not be changed or read: permission denied"
		case errors.Is(err, syscall.EISDIR):
			fail.text = f.shown + " is a folder"
		case errors.Is(err, syscall.ENXIO):
			fail.text = f.shown + " is no regular file"
		case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ELOOP):
			fail.text = "the path cannot be used: " + errno(err)
		default: // disk full and the like
			fail.code, fail.text = proto.EditUnavailable, f.shown+": "+errno(err)
		}
	}
	return proto.EditResult{Error: fail.code, Message: fail.text}
}

func errno(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return "it cannot be used"
}

// open opens a regular file and nothing else; it never waits for the other end of a FIFO.
func (f *file) open(flags int) (*os.File, os.FileInfo, error) {
	h, err := os.OpenFile(f.path, flags|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0o666)
	if err != nil {
		return nil, nil, err
	}
	info, err := h.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = &os.PathError{Op: "open", Path: f.path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		err = invalid("%s is no regular file", f.shown)
	}
	if err != nil {
		h.Close()
		return nil, nil, err
	}
	return h, info, nil
}

// read returns the whole file.
func (f *file) read() ([]byte, error) {
	h, _, err := f.open(os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	data, err := io.ReadAll(io.LimitReader(h, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = invalid("%s is larger than %d MiB; read or change parts of it with a program", f.shown, maxFile>>20)
	}
	return data, err
}

// readText returns a file that is to be changed.
func (f *file) readText() ([]byte, error) {
	data, err := f.read()
	if err == nil && binary(data) {
		err = invalid("%s is not a text file; change it with a program", f.shown)
	}
	return data, err
}

func binary(data []byte) bool {
	for _, c := range data[:min(len(data), 8<<10)] {
		if c == 0 {
			return true
		}
	}
	return false
}

// write replaces the file's content, whole or not at all where its folder allows it: a full disk must not cost the old content.
func (f *file) write(data []byte) error {
	h, info, err := f.open(os.O_WRONLY)
	if err != nil {
		return err
	}
	defer h.Close()
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Nlink == 1 {
		err = f.swap(data, info)
		if !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return err
		}
	}
	// Its other names are to show the change too, or there may be no second file beside it.
	if _, err := h.WriteAt(data, 0); err != nil {
		return err
	}
	return h.Truncate(int64(len(data)))
}

// swap puts a new file in the place of the one that info is of, with its name and rights.
func (f *file) swap(data []byte, info os.FileInfo) error {
	real, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return err
	}
	if now, err := os.Lstat(real); err != nil || !os.SameFile(now, info) {
		return invalid("%s was exchanged while it was edited", f.shown)
	}
	t, err := os.CreateTemp(filepath.Dir(real), ".edit-"+rand.Text()+"-*")
	if err != nil {
		return err
	}
	_, err = t.Write(data)
	if err = errors.Join(err, t.Chmod(info.Mode().Perm()), t.Close()); err == nil {
		err = os.Rename(t.Name(), real)
	}
	if err != nil {
		return errors.Join(err, os.Remove(t.Name()))
	}
	return nil
}

func (f *file) create(content string) (r proto.EditResult, err error) {
	_, err = os.Stat(f.path)
	if err == nil {
		return proto.EditResult{Updated: true}, f.write([]byte(content))
	}
	if !errors.Is(err, os.ErrNotExist) {
		return r, err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o777); err != nil {
		if errors.Is(err, syscall.ENOTDIR) {
			return r, invalid("a part of the path %s is no folder", f.shown)
		}
		return r, err
	}
	h, _, err := f.open(os.O_CREATE | os.O_WRONLY)
	if err != nil {
		return r, err
	}
	_, err = h.WriteString(content)
	if err = errors.Join(err, h.Close()); err != nil {
		return r, errors.Join(err, os.Remove(f.path))
	}
	return r, nil
}

// clip is the longest head of s within n bytes that ends with a whole character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
