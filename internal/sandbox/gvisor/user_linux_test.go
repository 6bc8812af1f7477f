package gvisor_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// nobody is the ordinary user that TestOrdinaryUser becomes.
const nobody = 65534

// ordinaryTests are those that matter most where there is no root: everything works, and what keeps code in holds. They run with the
// host's Python, which is there for everybody.
const ordinaryTests = "^(TestHostile|TestSuite|TestDurable|TestNames|TestCheck|TestKilledGateway|TestOrphan|TestDeath|TestStartTwice)$/" +
	"^(Files|Processes|Network|Sockets|Neighbours|Fork|Memory|Tmp|Guest|Rights|Setuid|ReadOnly|Nodes|" +
	"Python|Bash|Limits|Environment|Life|Checkpoint|Programs|Gone|Moved|Foreign|Failing|Hub|host)$"

// TestOrdinaryUser runs this test program once more, as a user without any right.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user: all tests ran as one")
	}
	if _, ok := roots(t)["host"]; !ok {
		t.Skip("needs /usr/bin/python3")
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	guest := filepath.Join(dir, "guest")
	if err := os.WriteFile(guest, buildGuest(t), 0o755); err != nil {
		t.Fatal(err)
	}
	publish(t, self, filepath.Join(dir, "test"))
	publish(t, findRunsc(t), filepath.Join(dir, "runsc"))
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, filepath.Join(dir, "tmp")} {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(p, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := tryUser(dir); err != nil {
		t.Skipf("an ordinary user may not make a user namespace here: %v", err)
	}
	cmd := exec.Command(filepath.Join(dir, "test"), "-test.run="+ordinaryTests, "-test.v", "-test.timeout=10m")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"),
		runscEnv + "=" + filepath.Join(dir, "runsc"), guestEnv + "=" + guest,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
	for _, test := range []string{"TestHostile/Guest", "TestHostile/Network", "TestSuite/Python", "TestDurable/Programs", "TestDurable/Gone", "TestDurable/Hub", "TestCheck/host", "TestKilledGateway"} {
		if err == nil && !bytes.Contains(out, []byte("--- PASS: "+test+" ")) {
			t.Errorf("%s did not run:\n%s", test, out)
		}
	}
}

// tryUser says whether that user may make a user namespace.
func tryUser(dir string) error {
	cmd := exec.Command("unshare", "--user", "--map-root-user", "true")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd.Run()
}

// publish copies a program to where everybody can run it.
func publish(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
