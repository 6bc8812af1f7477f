package guest

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Main is cmd/lathe-guest: it serves the host on its stdin and stdout, and returns the exit status. As root it isolates programs, as
// PID 1 it reaps; as anything else it says so in its hello frame and runs them as itself.
func Main() int {
	// What it does is to pass things on: with more than one, each goroutine that becomes ready wakes another thread, which is dear in gVisor.
	runtime.GOMAXPROCS(1)
	if len(os.Args) == 2 && os.Args[1] == editArgument {
		return editMain()
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	r, w, err := takeStdio()
	if err != nil {
		log.Error("cannot take stdin and stdout away from programs", "error", err)
		return 1
	}
	self, err := os.Executable()
	if err != nil {
		log.Error("where the guest's program is", "error", err)
		return 1
	}
	user, isolate := codeUser(os.Getuid(), os.Getenv(codeUserEnv))
	size, _ := strconv.ParseInt(os.Getenv(tmpSizeEnv), 10, 64)
	for _, name := range []string{codeUserEnv, tmpSizeEnv} {
		_ = os.Unsetenv(name) // no program's business
	}
	cfg := Config{
		Isolate: isolate, User: user, Reap: os.Getpid() == 1, Env: os.Environ(),
		WorkDir: "/mnt/data", Home: "/home/user", Tmp: "/tmp", Self: self, Log: log,
	}
	if !cfg.Isolate {
		cfg.Notes = append(cfg.Notes, "not root: programs run as the guest's own user")
	}
	if size > 0 {
		var g ground
		if err := g.lay(size); err != nil {
			log.Error("cannot lay out the sandbox", "error", err)
			return 1
		}
		cfg.Renew = g.renew
	}
	if copyDir(fontCache, ownFontCache) == nil {
		cfg.Env = append(cfg.Env, "MPLCONFIGDIR="+ownFontCache)
	}
	if err := confine(); err != nil {
		if cfg.Isolate {
			log.Error("cannot give up the way to more rights", "error", err)
			return 1
		}
		cfg.Notes = append(cfg.Notes, fmt.Sprintf("no_new_privs and the bounding set: %v", err))
	}
	if err := Serve(cfg, r, w); err != nil {
		log.Error("the host's end of the connection", "error", err)
		return 1
	}
	return 0
}

// fontCache is matplotlib's list of fonts, which an image may bring: making it takes as long as a plot. Matplotlib reads it only from a
// folder that it can write to.
const (
	fontCache    = "/usr/share/lathe/matplotlib"
	ownFontCache = "/tmp/.matplotlib"
)

// copyDir copies the files of a folder to a new one, for every user to change.
func copyDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(to, 0o777), os.Chmod(to, 0o777)); err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		path := filepath.Join(to, e.Name())
		if err := errors.Join(os.WriteFile(path, data, 0o666), os.Chmod(path, 0o666)); err != nil {
			return err
		}
	}
	return nil
}

// codeUserEnv is how a backend names the uid of programs. It is not 1000 where an ordinary user's namespace has only one uid whose files
// exist on the host: there programs are that one, which is called 0, and the guest is another with the capabilities it needs.
const codeUserEnv = "LATHE_CODE_UID"

// tmpSizeEnv is how a backend says what /tmp and /dev/shm may hold, in bytes. Without it the guest leaves them as they are.
const tmpSizeEnv = "LATHE_TMP_SIZE"

func codeUser(self int, env string) (user uint32, isolate bool) {
	n, err := strconv.ParseUint(env, 10, 32)
	if err != nil {
		return 1000, self == 0
	}
	return uint32(n), n != uint64(self)
}

// takeStdio moves the connection to descriptors that no program inherits, and leaves /dev/null in their place.
func takeStdio() (r, w *os.File, err error) {
	in, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return nil, nil, err
	}
	out, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return nil, nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	for fd := range 2 {
		if err := dup(int(null.Fd()), fd); err != nil {
			return nil, nil, err
		}
	}
	for _, fd := range []int{in, out} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, nil, err
		}
	}
	return os.NewFile(uintptr(in), "host"), os.NewFile(uintptr(out), "host"), nil
}
