package sandboxtest

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

const zeroSignal = syscall.Signal(0)

// testGuest: code cannot speak for the guest, look into it, stop it or end it.
func testGuest(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.refused(t, guestTries())
	p.usable(t)

	t.Run("every process", func(t *testing.T) {
		o := p.Bash(t, "kill -STOP -1; kill -9 -1")
		if o.Status == sandbox.StatusOK {
			t.Logf("the shell outlived it: %+v", *o.Result)
		}
		// The interpreter was code's own, so it may be gone.
		p.Python(t, "1")
		p.usable(t)
	})
	t.Run("frames on standard output", func(t *testing.T) {
		// What would be the end of the call, if it came from the guest: a length, the type of a result, the id, JSON.
		body := `{"status":"ok","exit_code":0}`
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
		frame = append(frame, 12, 0, 0, 0, 1)
		code := fmt.Sprintf("import os\nframe = bytes(%s)\nfor fd in (1, 2):\n"+
			"    for kind in range(14): os.write(fd, frame[:4] + bytes([kind]) + frame[5:])\n"+
			"raise ValueError('the true end')", pyBytes(append(frame, body...)))
		o := p.Python(t, code)
		if o.Status != sandbox.StatusError || !strings.Contains(o.Error, "the true end") {
			t.Errorf("%+v", *o.Result)
		}
		p.usable(t)
	})
}

// guestTries would speak for the guest, look into it, stop it or end it.
func guestTries() map[string]string {
	tries := map[string]string{
		"memory":      "open('/proc/1/mem', 'r+b')",
		"maps":        "open('/proc/1/maps').read(1)",
		"descriptors": "os.listdir('/proc/1/fd')",
		"folder":      "os.chdir('/proc/1/cwd')",
		"attach":      "call('ptrace', 16, 1, 0, 0)",
		"seize":       "call('ptrace', 0x4206, 1, 0, 0)",
		"read":        "syscall(310 if os.uname().machine == 'x86_64' else 270, 1, 0, 0, 0, 0, 0); os.listdir('/proc/1/fd')",
		"take-a-file": "syscall(438, os.pidfd_open(1), 1, 0)",
		"limits":      "import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))",
		"priority":    "os.setpriority(os.PRIO_PROCESS, 1, 19); os.listdir('/proc/1/fd')",
		"namespace":   "call('unshare', 0x10000000); os.kill(1, 9); os.listdir('/proc/1/fd')",
	}
	for fd := range 16 {
		tries[fmt.Sprint("fd", fd)] = fmt.Sprintf("os.write(os.open('/proc/1/fd/%d', os.O_WRONLY), b'\\n')", fd)
	}
	for _, s := range []string{"KILL", "TERM", "INT", "STOP", "HUP", "QUIT", "SEGV", "ABRT", "USR1", "PIPE"} {
		tries["SIG"+s] = "os.kill(1, signal.SIG" + s + ")"
	}
	return tries
}

func pyBytes(b []byte) string {
	items := make([]string, len(b))
	for i, c := range b {
		items[i] = fmt.Sprint(c)
	}
	return "[" + strings.Join(items, ",") + "]"
}

// testRights: code has no capability and no way to one.
func testRights(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	for kind, code := range map[sandbox.Kind]string{
		sandbox.Python: "print(open('/proc/self/status').read())",
		sandbox.Bash:   "cat /proc/self/status",
	} {
		o := p.Exec(t, sandbox.Call{Kind: kind, Code: code})
		for _, want := range []string{"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
			"CapBnd:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
			if !strings.Contains(o.Text(sandbox.Stdout), want) {
				t.Errorf("%s: /proc/self/status has no %q:\n%s", kind, want, o.Text(""))
			}
		}
	}
	p.refused(t, rightsTries())
	p.usable(t)
}

// rightsTries each need a capability or another user.
func rightsTries() map[string]string {
	tries := map[string]string{
		"mount":       "call('mount', b'none', b'/mnt/data', b'tmpfs', 0, None)",
		"bind":        "call('mount', b'/', b'/mnt/data', None, 4096, None)",
		"remount":     "call('mount', None, b'/', None, 32, None)",
		"umount":      "call('umount2', b'/mnt/data', 0)",
		"chroot":      "os.chroot('/tmp')",
		"pivot":       "os.chdir('/mnt/data'); syscall(155 if os.uname().machine == 'x86_64' else 41, b'.', b'.')",
		"hostname":    "socket.sethostname('other')",
		"clock":       "time.clock_settime(time.CLOCK_REALTIME, 0)",
		"reboot":      "call('reboot', 0x1234567)",
		"module":      "syscall(175 if os.uname().machine == 'x86_64' else 105, None, 0, b'')",
		"module-file": "syscall(313 if os.uname().machine == 'x86_64' else 273, 0, b'', 0)",
		"kexec":       "syscall(246 if os.uname().machine == 'x86_64' else 104, 0, 0, 0, 0)",
		"setuid":      "os.setuid(1 if os.getuid() == 0 else 0); open('/proc/1/environ').read()",
		"setgroups":   "os.setgroups([0])",
		"chown":       "os.chown('/usr/bin', os.getuid(), -1)",
		"give-away":   "open('mine', 'w').close(); os.chown('mine', 12345, 12345)",
		"realtime":    "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))",
		"ports":       "syscall(173, 0, 1, 1) if os.uname().machine == 'x86_64' else call('mount', None, b'/', None, 32, None)",
		"host-name":   "open('/proc/sys/kernel/hostname', 'w').write('x')",
		"core":        "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/sh')",
		"cgroup":      "open('/sys/fs/cgroup/memory/memory.limit_in_bytes', 'w').write('-1')",
		"low-file":    "open_by_handle = syscall(304 if os.uname().machine == 'x86_64' else 265, 3, b'\\0' * 32, 0)",
	}
	if os.Geteuid() == 0 {
		// In an ordinary user's namespace code is user 0, to whom this file of the sandbox's kernel belongs. Writing to it does nothing.
		tries["sysrq"] = "open('/proc/sysrq-trigger', 'w').write('b')"
	}
	return tries
}

// testSetuid: a file that would give its owner's rights gives none, wherever it lies.
func testSetuid(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	self := strings.TrimSpace(p.Bash(t, "id -u; cp \"$(command -v id)\" ./own; chmod 6755 own; cp own given").Text(sandbox.Stdout))
	if os.Geteuid() == 0 {
		given := filepath.Join(p.Data, "given")
		if err := os.Chown(given, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(given, 0o755|fs.ModeSetuid|fs.ModeSetgid); err != nil {
			t.Fatal(err)
		}
	}
	o := p.Bash(t, "./own -u; ./given -u")
	if got := strings.Fields(o.Text(sandbox.Stdout)); len(got) != 2 || got[0] != self || got[1] != self {
		t.Errorf("user %s became %q", self, o.Text(""))
	}
	o = p.Bash(t, `for program in su sudo pkexec newgrp; do
	command -v $program >/dev/null && $program -c 'cat /proc/self/status' </dev/null
done 2>&1 | grep CapEff
true`)
	for line := range strings.Lines(o.Text(sandbox.Stdout)) {
		if strings.HasPrefix(line, "CapEff:") && !strings.Contains(line, "0000000000000000") {
			t.Errorf("one of the programs for it gave rights: %s", line)
		}
	}
}

// testReadOnly: nothing of the root file system changes, and nothing of the guest's.
func testReadOnly(t *testing.T, b sandbox.Backend) {
	readOnly := openDir(t)
	if err := os.WriteFile(filepath.Join(readOnly, "skill"), []byte("as it was"), 0o666); err != nil {
		t.Fatal(err)
	}
	p := Start(t, b, func(s *sandbox.Spec) {
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: readOnly, Target: "/skills", ReadOnly: true})
	})
	tries := map[string]string{
		"passwd":       "open('/etc/passwd', 'a').write('x')",
		"guest":        "open('/.lathe/guest', 'r+b').write(b'x')",
		"guest-new":    "os.rename('/.lathe/guest', '/.lathe/other')",
		"guest-remove": "os.remove('/.lathe/guest')",
		"python":       "open('/usr/bin/python3', 'r+b')",
		"skill":        "open('/skills/skill', 'w').write('x')",
		"skill-mode":   "os.chmod('/skills/skill', 0o600)",
		"skill-remove": "os.remove('/skills/skill')",
		"skill-link":   "os.link('/skills/skill', '/skills/other')",
		"skill-time":   "os.utime('/skills/skill', (1, 1))",
		"mount-point":  "os.rename('/mnt/data', '/mnt/other')",
		"root-mode":    "os.chmod('/', 0o777)",
	}
	for _, dir := range []string{"/", "/usr", "/usr/bin", "/usr/lib", "/etc", "/var", "/home", "/mnt", "/skills", "/.lathe", "/root"} {
		tries["new-in-"+dir] = "open(os.path.join(" + quote(dir) + ", 'new'), 'w')"
		tries["folder-in-"+dir] = "os.mkdir(os.path.join(" + quote(dir) + ", 'new'))"
	}
	p.refused(t, tries)
	if got, err := os.ReadFile(filepath.Join(readOnly, "skill")); err != nil || string(got) != "as it was" {
		t.Errorf("on the host: %q, %v", got, err)
	}
	p.usable(t)
}

// testNodes: what code leaves in its volume is files, folders and links that lead nowhere on the host.
func testNodes(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.refused(t, map[string]string{
		"disk":      "os.mknod('disk', 0o060666, os.makedev(8, 0))",
		"memory":    "os.mknod('mem', 0o020666, os.makedev(1, 1))",
		"null":      "os.mknod('null', 0o020666, os.makedev(1, 3))",
		"hard-link": "os.link('/etc/passwd', 'passwd')",
	})
	p.Must(t, `import os, socket
for make in (lambda: os.mkfifo('fifo', 0o666), lambda: socket.socket(socket.AF_UNIX).bind('socket')):
    try: make()
    except OSError: pass
os.symlink('/etc/shadow', 'to-shadow')
os.symlink('/proc/self/root/etc/passwd', 'to-proc')
os.symlink('../../../../../../etc/passwd', 'to-above')
os.symlink('loop', 'loop')
os.makedirs('deep/' * 50)`)
	err := filepath.WalkDir(p.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type()&(fs.ModeDevice|fs.ModeCharDevice|fs.ModeIrregular) != 0 {
			t.Errorf("%s is a device", path)
		}
		info, err := d.Info()
		if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"to-shadow": "/etc/shadow", "to-above": "../../../../../../etc/passwd"} {
		if got, err := os.Readlink(filepath.Join(p.Data, name)); err != nil || got != want {
			t.Errorf("%s is %q, %v: it should be a link as it was made, for the host not to follow", name, got, err)
		}
	}
	// Inside, the links lead to what is inside.
	o := p.Bash(t, "cat to-above | head -1")
	if host, err := os.ReadFile("/etc/shadow"); err == nil && len(host) > 0 && strings.Contains(string(host), strings.TrimSpace(o.Text(""))) {
		t.Errorf("a link led to the host: %q", o.Text(""))
	}
}
