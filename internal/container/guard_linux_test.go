package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// smallDisk is a folder on a file system of its own.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	if !isRoot() {
		t.Skip("needs root: only root can mount a small disk")
	}
	dir := filepath.Join(t.TempDir(), "disk")
	must(t, os.Mkdir(dir, 0o755))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mib), "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// Volumes that are larger together than the disk below them do not fill it: who writes is stopped in time, and can go on when there is room.
func TestHostsDiskIsGuarded(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 200)
	b := newBench(t, func(c *Config) {
		c.Dir, c.Reserve = filepath.Join(disk, "containers"), 120<<20
		c.Limits.Disk = 1 << 30
	})
	if !b.volumes.images {
		t.Skip("needs loop devices")
	}
	w := b.open(turn.Hosted{})
	out := python(t, w, `
import os, time
x = 1
with open('big', 'wb') as f:
    while True:
        f.write(os.urandom(1 << 20))
        os.fsync(f.fileno())
        time.sleep(.02)`)
	if out.Status != "interrupted" || !strings.Contains(out.Error, "disk is nearly full") {
		t.Fatalf("a program that fills the host's disk: %s %s", out.Status, out.Error)
	}
	if free, err := freeSpace(disk); err != nil || free < 16<<20 {
		t.Errorf("%s are free, %v", size(free), err)
	}
	_, err := b.Create(as(t, "p"), NewContainer{})
	wantKind(t, "then", err, turn.KindOverloaded, "disk is nearly full")
	must(t, b.entry("p", w.Container().ID).files.vol.data.Remove("big"))
	eventually(t, "the volume has given its room back", func() bool { return b.checkSpace() == nil })
	if got := text(python(t, w, "print(x)")); got != "1\n" {
		t.Errorf("variables after the interrupt: %q", got)
	}
}

// The limits of a container on the real gVisor, from soft to hard: what a program meets, and what is there afterwards.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	b := newPlace(t).bench(t, func(c *Config) { c.Limits.Memory = 256 << 20 })
	w := b.open(turn.Hosted{})
	python(t, w, "x = 1\nopen('kept', 'w').write('before')")

	out := python(t, w, "y = bytearray(1 << 30)")
	if out.Status != "error" || !strings.Contains(out.Error, "MemoryError") {
		t.Errorf("more memory than there is: %s %s", out.Status, out.Error)
	}
	if got := text(python(t, w, "print(x)")); got != "1\n" || len(w.Notes()) > 0 {
		t.Errorf("variables after a MemoryError: %q", got)
	}
	if b.volumes.images {
		out = python(t, w, "with open('big', 'wb') as f:\n  while True: f.write(bytes(1 << 20))")
		if out.Status != "error" || !strings.Contains(out.Error, "No space left") {
			t.Errorf("more bytes than the volume has: %s %s", out.Status, out.Error)
		}
		out = python(t, w, "import os\nos.remove('big')\nos.mkdir('many')\ni = 0\nwhile True:\n  open(f'many/{i}', 'w').close()\n  i += 1")
		if out.Status != "error" || !strings.Contains(out.Error, "No space left") {
			t.Errorf("more files than the volume has: %s %s", out.Status, out.Error)
		}
		bash(t, w, "rm -r many")
		w.Notes()
	}
	if !isRoot() {
		t.Skip("needs root from here: only cgroups limit the memory of a sandbox as a whole")
	}
	// Each process stays below its own limit, all together do not.
	out = python(t, w, `
import os, time
open('during', 'w').write('written before the end')
for i in range(8):
    if os.fork() == 0:
        z = bytearray(100 << 20)
        for j in range(0, len(z), 4096): z[j] = 1
        time.sleep(600)
time.sleep(600)`)
	if out.Status != "killed" || !strings.Contains(out.Error, "256 MiB") {
		t.Fatalf("past the hard limit: %s %s", out.Status, out.Error)
	}
	if got := names(out.Files); len(got) != 1 || got[0] != "during" {
		t.Errorf("files of the call that died: %q", got)
	}
	w.Notes()
	if got := text(python(t, w, "print('x' in dir(), open('kept').read(), '-', open('during').read())")); got != "False before - written before the end\n" {
		t.Errorf("afterwards: %q", got)
	}
}
