package sandboxtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// Hostile runs what code in a sandbox must not be able to do. It is for backends that isolate, which the fake does not. newBackend is
// called for each group of tests; the backend is closed at the end of the group. With names, only those groups run.
func Hostile(t *testing.T, newBackend func(t *testing.T) sandbox.Backend, only ...string) {
	t.Helper()
	groups := map[string]func(*testing.T, sandbox.Backend){
		"Files": testFiles, "Processes": testProcesses, "Network": testNetwork, "Sockets": testSockets, "Neighbours": testNeighbours,
		"Outlive": testOutlive, "Fork": testFork, "Flood": testFlood, "Memory": testMemory, "OutOfMemory": testOutOfMemory,
		"Disk": testDisk, "Tmp": testTmp,
		"Guest": testGuest, "Rights": testRights, "Setuid": testSetuid, "ReadOnly": testReadOnly, "Nodes": testNodes,
		"Edit": testHostileEdit,
	}
	for name, test := range groups {
		if len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := newBackend(t)
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Errorf("close the backend: %v", err)
				}
			})
			test(t, b)
		})
	}
}

// attempts is Python that tries each expression by itself and prints its name with what came of it: "done" if nothing stopped it, else
// the exception. ctypes, socket and the like are imported for them.
func attempts(tries map[string]string) string {
	var b strings.Builder
	b.WriteString("import ctypes, errno, os, signal, socket, struct, sys, time\n" +
		"libc = ctypes.CDLL(None, use_errno=True)\n" +
		"def call(name, *args):\n" +
		"    if getattr(libc, name)(*args) == -1: raise OSError(ctypes.get_errno(), name)\n" +
		"def syscall(number, *args):\n" +
		"    if libc.syscall(number, *args) == -1: raise OSError(ctypes.get_errno(), str(number))\n")
	for name, code := range tries {
		fmt.Fprintf(&b, "try:\n    %s\n    print(%q, 'done')\nexcept Exception as e: print(%q, type(e).__name__, e)\n", code, name, name)
	}
	return b.String()
}

// refused runs attempts and fails the test for each that was not stopped.
func (p *Place) refused(t *testing.T, tries map[string]string) {
	t.Helper()
	o := p.Must(t, attempts(tries))
	lines := results(o.Text(sandbox.Stdout))
	for name := range tries {
		switch result := lines[name]; {
		case result == "":
			t.Errorf("%s: no result in %q", name, o.Text(""))
		case result == "done":
			t.Errorf("%s was not stopped", name)
		case untried.MatchString(result):
			t.Errorf("%s was not tried: %s", name, result)
		}
	}
}

// untried is the result of an attempt that is wrong in itself.
var untried = regexp.MustCompile("^(NameError|TypeError|AttributeError|SyntaxError)")

// results are what attempts printed, by their names.
func results(printed string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(printed) {
		name, result, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[name] = result
	}
	return found
}

// usable checks that a sandbox still does its work.
func (p *Place) usable(t *testing.T) {
	t.Helper()
	if o := p.Must(t, "print('usable')"); o.Text(sandbox.Stdout) != "usable\n" {
		t.Errorf("then Python printed %.200q", o.Text(""))
	}
	if o := p.Bash(t, "echo usable"); o.Text("") != "usable\n" {
		t.Errorf("then a command printed %.200q", o.Text(""))
	}
}

// testFiles: the host's files are not there.
func testFiles(t *testing.T, b sandbox.Backend) {
	secret := filepath.Join(openDir(t), "secret")
	if err := os.WriteFile(secret, []byte("the host's"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := Start(t, b, nil)
	p.refused(t, map[string]string{
		"by-path":       "open(" + quote(secret) + ")",
		"from-above":    "open('/../../../..' + " + quote(secret) + ")",
		"through-proc":  "open('/proc/1/root' + " + quote(secret) + ")",
		"through-self":  "open('/proc/self/root/..' + " + quote(secret) + ")",
		"its-folder":    "os.listdir(" + quote(filepath.Dir(secret)) + ")",
		"volume":        "os.listdir(" + quote(p.Data) + ")",
		"shadow":        "open('/etc/shadow').read()",
		"guest-memory":  "open('/proc/1/mem', 'rb')",
		"guest-environ": "open('/proc/1/environ', 'rb').read()",
		"disk":          "open('/dev/vda') if os.path.exists('/dev/vda') else open('/dev/sda')",
		"memory":        "open('/dev/mem', 'rb')",
		"kernel-log":    "open('/dev/kmsg')",
	})
	o := p.Bash(t, "ls -A /root /home /opt /srv /var/lib/lathe 2>/dev/null; cat /etc/hostname /etc/hosts /etc/resolv.conf 2>/dev/null")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"": true, ".ipython": true, "/root:": true, "/home:": true, "/opt:": true, "/srv:": true, "user": true, "sandbox": true}
	for line := range strings.Lines(o.Text(sandbox.Stdout)) {
		line = strings.TrimSpace(line)
		if !known[line] && !strings.Contains(line, "localhost") {
			t.Errorf("this is to be seen inside: %q", line)
		}
		if len(host) > 3 && strings.Contains(line, host) && host != "localhost" && host != "sandbox" {
			t.Errorf("the host's name is to be seen inside: %q", line)
		}
	}
	o = p.Bash(t, "cat /proc/self/mountinfo /proc/mounts /proc/cmdline; grep -H . /proc/self/cgroup")
	for _, path := range []string{p.Data, filepath.Dir(secret)} {
		if strings.Contains(o.Text(""), path) {
			t.Errorf("the host's path %s is to be seen inside", path)
		}
	}
}

// testProcesses: the host's processes are not there.
func testProcesses(t *testing.T, b sandbox.Backend) {
	const mark = "86399.125"
	sleep := exec.Command("sleep", mark)
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	})
	p := Start(t, b, nil)
	o := p.Must(t, `import os
seen = []
for pid in os.listdir('/proc'):
    if pid.isdigit():
        try: seen.append(open('/proc/' + pid + '/cmdline').read().replace('\0', ' '))
        except OSError as e: seen.append(str(e))
print(len(seen), seen)`)
	if strings.Contains(o.Text(""), mark) || strings.Contains(o.Text(""), filepath.Base(os.Args[0])) {
		t.Errorf("processes of the host are to be seen inside: %s", o.Text(""))
	}
	if n, _, _ := strings.Cut(o.Text(""), " "); n == "0" || len(n) > 1 {
		t.Errorf("%s processes inside: %s", n, o.Text(""))
	}
	p.refused(t, map[string]string{
		"signal-host": "os.kill(" + strconv.Itoa(sleep.Process.Pid) + ", 9)",
		"signal-test": "os.kill(" + strconv.Itoa(os.Getpid()) + ", 0)",
	})
	if err := sleep.Process.Signal(os.Signal(zeroSignal)); err != nil {
		t.Errorf("the host's process is gone: %v", err)
	}
}

// testNetwork: no address is to be reached but the sandbox's own loopback.
func testNetwork(t *testing.T, b sandbox.Backend) {
	var reached atomic.Int64
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			c.Close()
		}
	}()
	packets, err := net.ListenPacket("udp", ":"+port(listener.Addr()))
	if err != nil {
		t.Skipf("the port is taken for UDP: %v", err)
	}
	defer packets.Close()
	go func() {
		for {
			if _, _, err := packets.ReadFrom(make([]byte, 100)); err != nil {
				return
			}
			reached.Add(1)
		}
	}()
	// That the listener can be reached from here is what gives the rest its meaning.
	if c, err := net.Dial("tcp", "127.0.0.1:"+port(listener.Addr())); err != nil {
		t.Fatal(err)
	} else {
		c.Close()
	}
	waitUntil(t, "the listener works", func() bool { return reached.Load() == 1 })

	p := Start(t, b, nil)
	tries := map[string]string{
		"metadata": "socket.create_connection(('169.254.169.254', 80), 3)",
		"outside":  "socket.create_connection(('192.0.2.77', 443), 3)",
		"outside6": "socket.create_connection(('2001:db8::77', 443), 3)",
		"name":     "socket.getaddrinfo('example.com', 80)",
		"resolver": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.53', 53))",
		"raw":      "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
		"packet":   "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
		"vsock":    "socket.socket(40, socket.SOCK_STREAM).connect((2, 22))",
	}
	for i, host := range hostAddresses(t) {
		tries[fmt.Sprint("host-", i, "-", host)] = fmt.Sprintf("socket.create_connection((%q, %s), 3)", host, port(listener.Addr()))
		// A datagram to an own loopback address is sent, to nobody.
		tries[fmt.Sprint("udp-", i, "-", host)] = fmt.Sprintf("s = socket.socket(socket.%s, socket.SOCK_DGRAM); s.connect((%q, %s)); "+
			"s.send(b'x'); s.settimeout(0.2); s.recv(1)", family(host), host, port(listener.Addr()))
	}
	p.refused(t, tries)
	if n := reached.Load(); n != 1 {
		t.Errorf("the host was reached %d times", n-1)
	}
	if o := p.Must(t, "import socket\nsocket.if_nameindex()"); strings.Count(o.Text(""), "'") != 2 || !strings.Contains(o.Text(""), "'lo'") {
		t.Errorf("interfaces inside: %s", o.Text(""))
	}
	o := p.Must(t, "import socket\ns = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(s.getsockname(), 5)\n"+
		"s.accept()[0].sendall(b'own')\nprint(c.recv(3))")
	if o.Text(sandbox.Stdout) != "b'own'\n" {
		t.Errorf("the sandbox's own loopback: %s", o.Text(""))
	}
}

func hostAddresses(t *testing.T) []string {
	hosts := []string{"127.0.0.1"}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() && !n.IP.Equal(net.IPv4(127, 0, 0, 1)) {
			hosts = append(hosts, n.IP.String())
		}
	}
	return hosts
}

func family(host string) string {
	if strings.Contains(host, ":") {
		return "AF_INET6"
	}
	return "AF_INET"
}

func port(a net.Addr) string {
	_, p, _ := net.SplitHostPort(a.String())
	return p
}

// testSockets: no socket of the host is to be reached, not even one that lies in a mounted folder.
func testSockets(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	name := fmt.Sprintf("lathe-test-%d", time.Now().UnixNano())
	for _, addr := range []string{filepath.Join(p.Data, "s"), "@" + name} {
		l, err := net.Listen("unix", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if !strings.HasPrefix(addr, "@") {
			if err := os.Chmod(addr, 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.refused(t, map[string]string{
		"in-the-volume": "socket.socket(socket.AF_UNIX).connect('/mnt/data/s')",
		"abstract":      "socket.socket(socket.AF_UNIX).connect(" + quote(`\0`+name) + ")",
	})
}

// testNeighbours: two sandboxes of one backend know nothing of each other.
func testNeighbours(t *testing.T, b sandbox.Backend) {
	one, two := Start(t, b, nil), Start(t, b, nil)
	o := one.Must(t, "import socket\ns = socket.create_server(('127.0.0.1', 0))\n"+
		"u = socket.socket(socket.AF_UNIX)\nu.bind('\\0name')\nu.listen()\n"+
		"open('/tmp/own', 'w').write('x')\nopen('/dev/shm/own', 'w').write('x')\nprint(s.getsockname()[1])")
	two.refused(t, map[string]string{
		"port":     "socket.create_connection(('127.0.0.1', " + strings.TrimSpace(o.Text(sandbox.Stdout)) + "), 3)",
		"abstract": "socket.socket(socket.AF_UNIX).connect('\\0name')",
		"tmp":      "open('/tmp/own')",
		"shm":      "open('/dev/shm/own')",
	})
}

// testOutlive: a call's programs do not live longer than it may, whatever they do about it.
func testOutlive(t *testing.T, b sandbox.Backend) {
	const ignore = `import os, signal, time
for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM): signal.signal(s, signal.SIG_IGN)
`
	const daemon = ignore + `if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir('/mnt/data')
        for fd in range(3): os.close(fd)
        while True:
            f = os.open('beat', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(f, b'x')
            os.close(f)
            time.sleep(0.02)
    os._exit(0)
`
	for name, call := range map[string]sandbox.Call{
		"python":        {Kind: sandbox.Python, Code: ignore + beat},
		"python daemon": {Kind: sandbox.Python, Code: daemon + "while True: pass"},
		"bash":          {Kind: sandbox.Bash, Code: "trap '' INT TERM HUP; " + shellBeat},
		"bash daemon":   {Kind: sandbox.Bash, Code: "python3 - <<'END' &\n" + daemon + "END\nwhile :; do sleep 1; done"},
		"respawning": {Kind: sandbox.Bash, Code: "cat > again.sh <<'END'\n" +
			"trap '' INT TERM\nprintf x >> beat; sleep 0.02; setsid sh again.sh &\nEND\nsh again.sh; sleep 100"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Start(t, b, nil)
			p.Must(t, "1") // so that the time is the program's and not the interpreter's start
			call.Timeout = 1500 * time.Millisecond
			began := time.Now()
			o := p.Exec(t, call)
			if o.Status != sandbox.StatusTimeout {
				t.Errorf("%+v: %s", *o.Result, o.Text(""))
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it ended after %v", took)
			}
			p.stopped(t)
			p.usable(t)
		})
	}
}

// waitUntil waits for something on the host's side.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came about that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
