package sandboxtest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// edit runs a call of kind Edit to its end.
func (p *Place) edit(t *testing.T, call sandbox.EditCall) *sandbox.EditResult {
	t.Helper()
	code, err := json.Marshal(call)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := p.Sandbox.Exec(ctx, sandbox.Call{Kind: sandbox.Edit, Code: string(code)}, nil)
	if err != nil {
		t.Fatalf("edit %s: %v", code, err)
	}
	if r.Status != sandbox.StatusOK || r.Edit == nil {
		t.Fatalf("edit %s: %+v", code, r)
	}
	return r.Edit
}

func testEdit(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, func(s *sandbox.Spec) { s.Env = map[string]string{"INPUT_DIR": "/mnt/data"} })
	text, old, changed := "one\ntwo\n", "two", "2"
	if r := p.edit(t, sandbox.EditCall{Command: "create", Path: "sub/f", FileText: &text}); r.Error != "" || r.Updated {
		t.Errorf("create: %+v", r)
	}
	r := p.edit(t, sandbox.EditCall{Command: "str_replace", Path: "/mnt/data/sub/f", OldStr: &old, NewStr: &changed})
	if !slices.Equal(r.Hunk, []string{" one", "-two", "+2"}) {
		t.Errorf("str_replace: %+v", r)
	}
	r = p.edit(t, sandbox.EditCall{Command: "view", Path: "$INPUT_DIR/sub/f", ViewRange: []int{2, -1}})
	if r.Content != "2\n" || r.StartLine != 2 || r.TotalLines != 2 {
		t.Errorf("view: %+v", r)
	}
	if r := p.edit(t, sandbox.EditCall{Command: "view", Path: "gone"}); r.Error != "file_not_found" {
		t.Errorf("a file that is not there: %+v", r)
	}
	if out := p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: "cat sub/f; rm sub/f"}); out.Text(sandbox.Stdout) != "one\n2\n" {
		t.Errorf("the shell sees %q", out.Text(""))
	}
	long := strings.Repeat("x\u0001\u2028", 200_000)
	p.edit(t, sandbox.EditCall{Command: "create", Path: "long", FileText: &long})
	if r := p.edit(t, sandbox.EditCall{Command: "view", Path: "long"}); r.Content != long {
		t.Errorf("a long line came back with %d of %d bytes", len(r.Content), len(long))
	}
}

// testHostileEdit: the editor has the rights of a program and no more, whatever a program puts in a file's place.
func testHostileEdit(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	secret := filepath.Join(p.Data, "keep", "secret")
	if err := os.Mkdir(filepath.Dir(secret), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, []byte("host's secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: `cat keep/secret; mkfifo fifo; ln -s /etc/passwd passwd; ln -s keep/secret link; ln -s /proc/1/root/etc/shadow shadow; ln -s .. up
mkdir locked; echo hidden > locked/f; chmod 0 locked; mkfifo locked2; echo x > f`}); strings.Contains(out.Text(""), "host's") {
		t.Skip("programs are root on this machine: nothing can be kept from them")
	}
	x, y := "x", "y"
	for _, path := range []string{
		"keep/secret", "link", "/proc/1/environ", "/proc/1/mem", "/proc/1/root/etc/shadow", "shadow", "fifo", "locked/f", "/dev/zero", "/dev/tty",
		"/.lathe/guest", "/proc/self/fd/0", "/proc/1/fd/10", "/dev/stdin", "/proc/self/fd/3",
	} {
		begin := time.Now()
		for _, call := range []sandbox.EditCall{
			{Command: "view", Path: path}, {Command: "str_replace", Path: path, OldStr: &x, NewStr: &y},
		} {
			if r := p.edit(t, call); r.Error == "" || r.Content != "" {
				t.Errorf("%s %s: %+v", call.Command, path, r)
			}
		}
		if time.Since(begin) > patience/2 {
			t.Errorf("%s held the editor up", path)
		}
	}
	for _, path := range []string{"keep/secret", "keep/new", "link", "passwd", "/etc/new", "/.lathe/guest", "/proc/1/environ", "fifo", "/new", "locked/g", "/usr/bin/x"} {
		if r := p.edit(t, sandbox.EditCall{Command: "create", Path: path, FileText: &x}); r.Error == "" {
			t.Errorf("create %s: %+v", path, r)
		}
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "host's secret\n" {
		t.Errorf("the secret is %q, %v", got, err)
	}
	p.edit(t, sandbox.EditCall{Command: "create", Path: "made", FileText: &x})
	info, err := os.Lstat(filepath.Join(p.Data, "made"))
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 1000 {
			t.Errorf("a made file belongs to %+v", info.Sys())
		}
	}
	testEditRace(t, p)
}

// testEditRace: a program exchanges the file while the editor is at it.
func testEditRace(t *testing.T, p *Place) {
	p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: `echo mine > target
(for i in $(seq 400); do ln -sf keep/secret target; ln -sf fifo target; rm -f target; echo mine > target; done) >/dev/null 2>&1 &`})
	x, y := "mine", "host's"
	for range 30 {
		for _, call := range []sandbox.EditCall{
			{Command: "view", Path: "target"}, {Command: "str_replace", Path: "target", OldStr: &x, NewStr: &y}, {Command: "create", Path: "target", FileText: &x},
		} {
			if r := p.edit(t, call); strings.Contains(r.Content, "secret") {
				t.Fatalf("%s: %+v", call.Command, r)
			}
		}
	}
	if got, err := os.ReadFile(filepath.Join(p.Data, "keep", "secret")); err != nil || string(got) != "host's secret\n" {
		t.Errorf("the secret is %q, %v", got, err)
	}
}
