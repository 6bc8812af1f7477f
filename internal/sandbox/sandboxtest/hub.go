package sandboxtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// skill is a folder of the host's with a file, a program and a link in it.
func skill(t *testing.T, text string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "skill")
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"text": text, "bin/run": "#!/bin/sh\necho ran " + text + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("text", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// testHub: folders that come below a mount before a sandbox starts, while it runs, and when it is restored.
func testHub(t *testing.T, b sandbox.Backend) {
	one, two := skill(t, "one"), skill(t, "two")
	withHub := func(s *sandbox.Spec) {
		s.Mounts = append(s.Mounts, sandbox.Mount{Target: "/skills/one", Source: one, ReadOnly: true},
			sandbox.Mount{Target: "/skills", Hub: true, ReadOnly: true})
	}
	shows := func(t *testing.T, p *Place, want string) {
		t.Helper()
		if o := p.Bash(t, "cd /skills && for s in *; do echo $s $(cat $s/text) $(cat $s/link) $($s/bin/run); done"); o.Text("") != want {
			t.Errorf("got %q, want %q", o.Text(""), want)
		}
	}
	bind := func(t *testing.T, p *Place, target, source string) {
		t.Helper()
		if err := p.Bind(t.Context(), sandbox.Mount{Target: target, Source: source, ReadOnly: true}); err != nil {
			t.Fatal(err)
		}
	}
	p := Start(t, b, withHub)
	shows(t, p, "one one one ran one\n")
	t.Run("bind", func(t *testing.T) {
		p.Must(t, "import os\nf = open('/skills/one/text')\nos.listdir('/skills')")
		bind(t, p, "/skills/two", two)
		shows(t, p, "one one one ran one\ntwo two two ran two\n")
	})
	t.Run("replace", func(t *testing.T) {
		bind(t, p, "/skills/two", skill(t, "newer"))
		shows(t, p, "one one one ran one\ntwo newer newer ran newer\n")
		bind(t, p, "/skills/two", two)
	})
	t.Run("read-only", func(t *testing.T) {
		for _, what := range []string{"echo x > /skills/two/text", "rm /skills/two/text", "touch /skills/two/more", "touch /skills/more",
			"mkdir /skills/more", "chmod 777 /skills/two/text", "mv /skills/two /skills/three", "mv /skills/two/text /mnt/data/"} {
			if o := p.Bash(t, what); o.Status != sandbox.StatusError {
				t.Errorf("%s: %+v", what, *o.Result)
			}
		}
		if data, err := os.ReadFile(filepath.Join(two, "text")); err != nil || string(data) != "two" {
			t.Errorf("the host's file is %q, %v", data, err)
		}
	})
	t.Run("elsewhere", func(t *testing.T) {
		for _, target := range []string{"/skills", "/mnt/data/two", "/skills/../mnt/two", "/usr/two", "/skillset/two", "/skills/./two", ""} {
			if err := p.Bind(t.Context(), sandbox.Mount{Target: target, Source: two}); err == nil {
				t.Errorf("bound at %q", target)
			}
		}
		for _, source := range []string{filepath.Join(two, "text"), filepath.Join(two, "none"), "relative", ""} {
			if err := p.Bind(t.Context(), sandbox.Mount{Target: "/skills/three", Source: source}); err == nil {
				t.Errorf("bound %q", source)
			}
		}
	})
	t.Run("restored", func(t *testing.T) {
		dir := checkpoint(t, p)
		q := restored(t, b, dir, p, withHub)
		shows(t, q, "one one one ran one\n")
		if o := q.Must(t, "f.read()"); o.Text(sandbox.Value) != "'one'" {
			t.Errorf("got %s", o.Text(sandbox.Value))
		}
		bind(t, q, "/skills/deep/er/two", two)
		if o := q.Bash(t, "cat /skills/deep/er/two/text"); o.Text("") != "two" {
			t.Errorf("got %q", o.Text(""))
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := q.Bind(t.Context(), sandbox.Mount{Target: "/skills/late", Source: two}); err == nil {
			t.Error("bound in a sandbox that has ended")
		}
	})
	for _, dir := range []string{one, two} {
		if _, err := os.Stat(filepath.Join(dir, "bin/run")); err != nil {
			t.Errorf("the source is no longer whole: %v", err)
		}
	}
}
