package sandboxtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// powerless are attempts that not even gVisor's own root can make, so that their refusal shows nothing about the guard, or that end the
// control before the rest of it.
var powerless = []string{
	"guest-SIGKILL", "guest-SIGSTOP", "guest-namespace",
	"rights-cgroup", "rights-clock", "rights-core", "rights-kexec", "rights-low-file", "rights-module", "rights-module-file",
	"rights-pivot", "rights-ports", "rights-realtime", "rights-reboot", "rights-setuid",
}

// rightsAbuse is what testRights and testGuest see refused, and more, as far as gVisor lets its own root do it.
func rightsAbuse() []abuse {
	tries := map[string]string{
		"raw-socket":    "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
		"packet-socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
		"arguments":     "assert open('/proc/1/environ', 'rb').read(1), 'empty'",
		"root-new":      "open('/usr/bin/new', 'w').write('x')",
		"passwd":        "open('/etc/passwd', 'a').write('x')",
		"setuid-file":   "import shutil; shutil.copy('/bin/true', '/tmp/own'); os.chown('/tmp/own', 0, 0); os.chmod('/tmp/own', 0o6755)",
		"disk-node":     "os.mknod('/tmp/disk', 0o060666, os.makedev(8, 0))",
		"null-node":     "os.mknod('/tmp/null%d' % os.getpid(), 0o020666, os.makedev(1, 3))",
		"tun":           "os.mknod('/tmp/tun', 0o020666, os.makedev(10, 200)); os.open('/tmp/tun', os.O_RDWR)",
		"process-limit": "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))",
		"memory-limit":  "import resource; resource.setrlimit(resource.RLIMIT_DATA, (1, 1)); resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))",
		"network":       "call('unshare', 0x40000000)",
	}
	for group, more := range map[string]map[string]string{"guest": guestTries(), "rights": rightsTries()} {
		for name, code := range more {
			if name = group + "-" + name; !slices.Contains(powerless, name) {
				tries[name] = code
			}
		}
	}
	// A user namespace gives every capability, but over nothing that was there before it.
	for _, name := range []string{"guest-memory", "guest-attach", "guest-SIGTERM", "guest-limits", "rights-host-name",
		"rights-bind", "rights-setgroups", "rights-chown", "null-node", "process-limit", "memory-limit", "raw-socket"} {
		tries["namespace-"+name] = "os.getuid() == 0 or call('unshare', 0x10000000); " + tries[name]
	}
	var list []abuse
	for _, name := range slices.Sorted(maps.Keys(tries)) {
		list = append(list, abuse{name: name, kind: sandbox.Bash, code: tries[name]})
	}
	return list
}

// runRights makes all attempts in one sandbox, each in a process of its own, since some would spoil what comes after them.
func runRights(t *testing.T, b sandbox.Backend, cases []abuse, control Control) {
	var list strings.Builder
	for _, c := range cases {
		fmt.Fprintf(&list, "%q, ", attempts(map[string]string{c.name: c.code}))
	}
	program := "import os, sys\nfor code in [" + list.String() + "]:\n    sys.stdout.flush()\n    if os.fork() == 0:\n" +
		"        try: exec(code)\n        finally: sys.stdout.flush(); os._exit(0)\n    os.wait()\n"
	p := Start(t, b, nil)
	guarded := results(p.Bash(t, script(program)).Text(sandbox.Stdout))
	p.usable(t)
	root := results(control(t, program))
	for _, c := range cases {
		switch got := guarded[c.name]; {
		case got == "":
			t.Errorf("%s: no result", c.name)
		case got == "done":
			t.Errorf("%s was not stopped", c.name)
		case untried.MatchString(got):
			t.Errorf("%s was not tried: %s", c.name, got)
		}
		if got := root[c.name]; got != "done" {
			t.Errorf("the control of %s does not bite: %s", c.name, got)
		}
	}
}
