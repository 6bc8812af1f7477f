package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// control is a connection to the control server of a sandbox, which runsc itself uses for "start", "checkpoint" and "restore". Talking to
// it directly spares the start of a runsc process each time, 30 to 50 ms of it.
//
// The wire is gVisor's pkg/urpc: one JSON object a call, {"method", "arg"}, and one an answer, {"success", "err", "result"}, on a stream
// socket; files go along as SCM_RIGHTS with the first byte. The arguments are those of runsc/boot/controller.go. Neither is a stable
// interface, so it goes with the gVisor that runsc/go.mod pins; the tests on real gVisor tell when a newer one has changed it.
type control struct {
	conn *net.UnixConn
}

// The methods that are used.
const (
	callSetNetwork = "containerManager.SetNetworkArgs"
	callStart      = "containerManager.StartRoot"
	callCheckpoint = "containerManager.Checkpoint"
	callRestore    = "containerManager.Restore"
	callProcesses  = "containerManager.ProcfsDump"
)

// remoteError is what the sandbox's kernel answered; every other error of a call is one of the connection.
type remoteError struct{ text string }

func (e remoteError) Error() string { return e.text }

// maxAnswer caps what a sandbox can make this process read. After a longer answer the connection is of no more use.
const maxAnswer = 16 << 20

// maxSocketPath is the room in sockaddr_un.
const maxSocketPath = 107

// dialControl connects to the sandbox with that id.
func dialControl(ctx context.Context, root, id string) (*control, error) {
	path := filepath.Join(root, "runsc-"+id+".sock")
	if len(path) > maxSocketPath {
		// A path through a descriptor of ours is short.
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		defer unix.Close(fd)
		path = "/proc/self/fd/" + strconv.Itoa(fd)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return &control{conn.(*net.UnixConn)}, nil
}

func (c *control) close() { _ = c.conn.Close() }

// call calls method and waits for the answer, whose result goes into result if that is not nil. The end of ctx ends the connection.
func (c *control) call(ctx context.Context, method string, arg, result any, files ...*os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	data, err := json.Marshal(struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{method, arg})
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := c.conn.WriteMsgUnix(data, rights, nil)
	if err == nil && n < len(data) {
		_, err = c.conn.Write(data[n:])
	}
	var answer struct {
		Success bool            `json:"success"`
		Err     string          `json:"err"`
		Result  json.RawMessage `json:"result"`
	}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(c.conn, maxAnswer)).Decode(&answer)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("%s: %w", method, err)
	case !answer.Success:
		return remoteError{answer.Err}
	case result == nil:
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

func isRemote(err error) bool {
	_, ok := errors.AsType[remoteError](err)
	return ok
}

// The arguments, with gVisor's names.
type (
	// networkArgs is boot.CreateLinksAndRoutesArgs.
	networkArgs struct {
		LoopbackLinks []loopbackLink
		IsRestore     bool
	}
	loopbackLink struct {
		Name      string
		Addresses []ipWithPrefix
		Routes    []route
	}
	ipWithPrefix struct {
		Address   net.IP
		PrefixLen int
	}
	route struct{ Destination net.IPNet }

	// saveOpts is control.SaveOpts. Files: state, the pages' metadata, the pages.
	saveOpts struct {
		Metadata          map[string]string `json:"metadata"`
		ExcludeZeroPages  bool              `json:"app_mf_exclude_committed_zero_pages"`
		HavePagesFile     bool              `json:"have_pages_file"`
		ResumeAfterSaving bool              `json:"Resume"`
	}

	// restoreOpts is boot.RestoreOpts. Files as in saveOpts.
	restoreOpts struct {
		HavePagesFile bool
		Background    bool
	}
)

// processInfo is what is used of procfs.ProcessProcfsDump.
type processInfo struct {
	Exe string `json:"exe"`
	CWD string `json:"cwd"`
	FDs []struct {
		Path string `json:"path"`
		Mode uint16 `json:"mode"`
	} `json:"fdlist"`
	Maps []struct {
		Pathname string `json:"pathname"`
	} `json:"maps"`
	Status struct {
		VMSize int64 `json:"vm_size"` // in KiB
		UID    struct {
			Real uint32 `json:"real"`
		} `json:"uid"`
	} `json:"status"`
}

// loopback is what runsc sets up with --network=none.
func loopback(restore bool) networkArgs {
	return networkArgs{IsRestore: restore, LoopbackLinks: []loopbackLink{{
		Name:      "lo",
		Addresses: []ipWithPrefix{{net.IPv4(127, 0, 0, 1).To4(), 8}, {net.IPv6loopback, 128}},
		Routes: []route{
			{net.IPNet{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}},
			{net.IPNet{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)}},
		},
	}}}
}
