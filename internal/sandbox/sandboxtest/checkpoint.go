package sandboxtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// checkpoint writes p's memory to a new folder.
func checkpoint(t *testing.T, p *Place) string {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := p.Checkpoint(ctx, dir)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this backend keeps no memory")
	}
	if err != nil {
		t.Fatalf("checkpoint: %v", err)
	}
	waitDone(t, p)
	return dir
}

// restore starts a sandbox from an image, with the folders of from and a spec that edit may change.
func restore(t *testing.T, b sandbox.Backend, dir string, from *Place, edit func(*sandbox.Spec)) (*Place, error) {
	t.Helper()
	p := &Place{Data: from.Data, Home: from.Home}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	spec := newSpec(p)
	if edit != nil {
		edit(&spec)
	}
	s, err := b.Restore(ctx, spec, dir)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the sandbox: %v", err)
		}
	})
	p.Sandbox = s
	return p, nil
}

// testCheckpoint: what Checkpoint writes and Restore gives back.
func testCheckpoint(t *testing.T, b sandbox.Backend) {
	must := func(t *testing.T, p *Place, err error) *Place {
		t.Helper()
		if err != nil {
			t.Fatalf("restore: %v", err)
		}
		return p
	}
	t.Run("variables", func(t *testing.T) {
		p := Start(t, b, nil)
		p.Must(t, `
import json, math, os
os.mkdir('sub')
os.chdir('sub')
os.environ['MINE'] = 'set'
x, same = [1, 2], {}
same['self'] = x
def twice(n): return n * 2 + math.floor(0.5)
f = open('open.txt', 'w')
f.write('before ')
f.flush()
None`)
		dir := checkpoint(t, p)
		if _, err := p.Sandbox.Exec(t.Context(), sandbox.Call{Kind: sandbox.Python, Code: "1"}, nil); err == nil {
			t.Error("the sandbox goes on after its checkpoint")
		}
		p, err := restore(t, b, dir, p, nil)
		must(t, p, err)
		o := p.Must(t, `
same['self'].append(3)
f.write('after')
f.close()
x, twice(21), os.path.basename(os.getcwd()), os.environ['MINE'], json.dumps(1), open('open.txt').read()`)
		if want := "([1, 2, 3], 42, 'sub', 'set', '1', 'before after')"; o.Text(sandbox.Value) != want {
			t.Errorf("got %s, want %s", o.Text(sandbox.Value), want)
		}
		if o := p.Bash(t, "echo up"); o.Text("") != "up\n" {
			t.Errorf("bash: %q", o.Text(""))
		}
	})
	t.Run("twice, in two places", func(t *testing.T) {
		p := Start(t, b, nil)
		p.Must(t, "x = 'kept'")
		dir := checkpoint(t, p)
		first, err := restore(t, b, dir, p, nil)
		must(t, first, err)
		second, err := restore(t, b, dir, &Place{Data: openDir(t), Home: openDir(t)}, nil)
		must(t, second, err)
		first.Must(t, "x += ' first'; open('mine', 'w').write('1'); None")
		o := second.Must(t, "import os\nx, os.listdir('.')")
		if want := "('kept', [])"; o.Text(sandbox.Value) != want {
			t.Errorf("got %s, want %s", o.Text(sandbox.Value), want)
		}
		if first.size("mine") != 1 {
			t.Error("the first one's file is not in its folder")
		}
		again := checkpoint(t, first)
		third, err := restore(t, b, again, first, nil)
		must(t, third, err)
		if o := third.Must(t, "x"); o.Text(sandbox.Value) != "'kept first'" {
			t.Errorf("a checkpoint of a restored one: %s", o.Text(sandbox.Value))
		}
	})
	t.Run("nothing has run", func(t *testing.T) {
		p := Start(t, b, nil)
		q, err := restore(t, b, checkpoint(t, p), p, nil)
		must(t, q, err)
		q.Must(t, "1")
	})
	t.Run("a file that was open and is shorter now", func(t *testing.T) {
		p := Start(t, b, nil)
		p.Must(t, "x = 7\nf = open('f', 'w')\nf.write('0123456789'); f.flush()\nNone")
		dir := checkpoint(t, p)
		if err := os.Truncate(filepath.Join(p.Data, "f"), 0); err != nil {
			t.Fatal(err)
		}
		q, err := restore(t, b, dir, p, nil)
		must(t, q, err)
		if o := q.Must(t, "x"); o.Text(sandbox.Value) != "7" {
			t.Errorf("got %s", o.Text(sandbox.Value))
		}
	})
	t.Run("not an image", func(t *testing.T) {
		p := Start(t, b, nil)
		p.Must(t, "x = 1")
		dir := checkpoint(t, p)
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.Truncate(filepath.Join(dir, f.Name()), 3); err != nil {
				t.Fatal(err)
			}
		}
		for what, dir := range map[string]string{"cut short": dir, "empty": t.TempDir()} {
			if _, err := restore(t, b, dir, p, nil); !errors.Is(err, sandbox.ErrUnusable) {
				t.Errorf("%s: got %v, want ErrUnusable", what, err)
			}
		}
	})
}
