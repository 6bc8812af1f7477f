package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// tree is the folder of one vessel below layout.mounts, with what the vessel is to see of the host.
//
// Where this process can mount, it has an empty folder for each mount of the sandbox. layout.mounts is a shared mount and the sandbox's
// gofer has a slave of each folder, so what is mounted on or below one at any time appears inside: a vessel can be created before it is known
// whose it will be, and a hub gets more while it runs. An ordinary user cannot mount; there the gofer has the sources themselves, and what a
// hub holds is linked or copied into its folder.
type tree struct {
	b     *Backend
	dir   string
	slots []slot
	tops  []string // mount points, the newest last
}

// slot is one of the sandbox's mounts, and the folder of the host that the gofer opens for it.
type slot struct {
	target, dir   string
	readOnly, hub bool
}

// topMounts are the mounts that the sandbox's kernel knows of, a folder before what lies below it: all but those below a hub.
func topMounts(mounts []sandbox.Mount) []sandbox.Mount {
	var top []sandbox.Mount
	for _, m := range mounts {
		if hub, _ := below(hubs(mounts), m.Target); hub == nil {
			top = append(top, m)
		}
	}
	slices.SortStableFunc(top, func(a, b sandbox.Mount) int { return len(a.Target) - len(b.Target) })
	return top
}

// usualMounts are the places that all images have. A sandbox whose mounts are among these has all of them, those that it was not given
// empty: so one memory image fits them all, a prepared one above all, and one that was written before there was a place.
var usualMounts = []sandbox.Mount{{Target: "/skills", ReadOnly: true, Hub: true}, {Target: "/mnt/data"}, {Target: "/home/user"}}

// slotMounts are the mounts that a sandbox with these has: its top ones, and the usual ones if those are among them.
func slotMounts(mounts []sandbox.Mount) []sandbox.Mount {
	top := topMounts(mounts)
	slots := slices.Clone(usualMounts)
	for _, m := range top {
		i := slices.IndexFunc(slots, func(s sandbox.Mount) bool { return s.Target == m.Target && s.ReadOnly == m.ReadOnly })
		if i < 0 {
			return top
		}
		slots[i] = m
	}
	return slots
}

func hubs(mounts []sandbox.Mount) []sandbox.Mount {
	return slices.DeleteFunc(slices.Clone(mounts), func(m sandbox.Mount) bool { return !m.Hub })
}

// newTree makes the folders for a vessel. After an error nothing is left.
func (b *Backend) newTree(name string, mounts []sandbox.Mount) (*tree, error) {
	t := &tree{b: b, dir: filepath.Join(b.layout.mounts, name)}
	if err := os.Mkdir(t.dir, 0o755); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	for i, m := range slotMounts(mounts) {
		s := slot{target: m.Target, readOnly: m.ReadOnly, hub: m.Hub, dir: m.Source}
		if b.late || m.Source == "" {
			s.dir = filepath.Join(t.dir, strconv.Itoa(i))
			if err := os.Mkdir(s.dir, 0o755); err != nil {
				return nil, errors.Join(fmt.Errorf("gvisor: %w", err), t.remove())
			}
		}
		t.slots = append(t.slots, s)
	}
	return t, nil
}

// ociMounts are the slots as runsc is told of them.
func (t *tree) ociMounts() []ociMount {
	var out []ociMount
	for _, s := range t.slots {
		out = append(out, bind(s.dir, s.target, s.readOnly))
	}
	return out
}

// attach puts mounts, whose top ones are the slots, behind them.
func (t *tree) attach(mounts []sandbox.Mount) error {
	for _, m := range topMounts(mounts) {
		i := slices.IndexFunc(t.slots, func(s slot) bool { return s.target == m.Target })
		if i < 0 || m.Hub || !t.b.late {
			continue
		}
		if err := t.mount(m.Source, t.slots[i].dir, m.ReadOnly); err != nil {
			return err
		}
	}
	for _, m := range mounts {
		if hub, _ := below(hubs(mounts), m.Target); hub == nil {
			continue
		}
		if err := t.bind(m); err != nil {
			return err
		}
	}
	return nil
}

// bind puts a folder at a place below a hub, instead of what may be there already.
func (t *tree) bind(m sandbox.Mount) error {
	var hub *slot
	var rest string
	for i, s := range t.slots {
		if r, ok := strings.CutPrefix(m.Target, s.target+"/"); ok && s.hub {
			hub, rest = &t.slots[i], r
		}
	}
	switch {
	case hub == nil:
		return fmt.Errorf("gvisor: bind: %s does not lie below a hub of this sandbox", m.Target)
	case m.ReadOnly && !hub.readOnly:
		// gVisor opens files for writing too where its own mount allows it, and then gives up reading when the host's does not.
		return fmt.Errorf("gvisor: bind: %s cannot be read-only: the hub %s is not", m.Target, hub.target)
	}
	target := filepath.Join(hub.dir, rest)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("gvisor: bind: %w", err)
	}
	if !t.b.late {
		if !hub.readOnly {
			// The files are the host's own, under another name.
			return fmt.Errorf("gvisor: bind: without root only a hub that is read-only can have other folders: %s is not", hub.target)
		}
		return copyTree(m.Source, target)
	}
	if err := t.unmount(target); err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("gvisor: bind: %w", err)
	}
	return t.mount(m.Source, target, hub.readOnly)
}

// mount mounts source on target. It is given its attributes before it is put there: later they would not propagate.
func (t *tree) mount(source, target string, readOnly bool) error {
	fail := func(err error) error { return fmt.Errorf("gvisor: mount %s: %w", source, err) }
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_SLAVE}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fail(err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fail(err)
	}
	t.tops = append(t.tops, target)
	return nil
}

// unmount takes away what mount put on target, if it did.
func (t *tree) unmount(target string) error {
	i := slices.Index(t.tops, target)
	if i < 0 {
		return nil
	}
	if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("gvisor: unmount %s: %w", target, err)
	}
	t.tops = slices.Delete(t.tops, i, i+1)
	return nil
}

// remove takes all of it away, after the vessel's processes have ended.
func (t *tree) remove() error {
	var errs []error
	for _, target := range slices.Backward(slices.Clone(t.tops)) {
		errs = append(errs, t.unmount(target))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return t.b.removeTree(t.dir)
}

// removeTree removes a folder of a tree from which everything has been unmounted. What a mount may still cover is never removed: where
// there are mounts the folders are empty, and where there are files nothing can be mounted.
func (b *Backend) removeTree(dir string) error {
	if !b.late {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, b.removeTree(filepath.Join(dir, e.Name())))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return unix.Rmdir(dir)
}

// clearTrees takes away what vessels of an earlier process left.
func (b *Backend) clearTrees() error {
	dir := b.layout.mounts
	// Sandboxes that have just ended may still be letting go of theirs; here the mounts go at once.
	if err := unmountUnder(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, b.removeTree(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}

// shareTrees makes layout.mounts a shared mount of its own, and says whether this process can do so and what mount needs.
func (b *Backend) shareTrees() bool {
	if b.uid != 0 {
		return false
	}
	dir := b.layout.mounts
	probe, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return false // no right to mount, or a Linux before 5.2
	}
	defer unix.Close(probe)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(probe, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return false // a Linux before 5.12
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return false
	}
	for _, how := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", dir, "", how, ""); err != nil {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
			return false
		}
	}
	return true
}

// copyTree makes target a copy of the folder source with hard links where it can, in the place of what may be there. It appears whole.
func copyTree(source, target string) error {
	work, err := os.MkdirTemp(filepath.Dir(target), ".new-")
	if err != nil {
		return fmt.Errorf("gvisor: bind: %w", err)
	}
	defer os.RemoveAll(work)
	fresh, old := filepath.Join(work, "new"), filepath.Join(work, "old")
	err = filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		return copyEntry(path, filepath.Join(fresh, rest), d)
	})
	if err == nil {
		if err = os.Rename(target, old); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Rename(fresh, target)
	}
	if err != nil {
		return fmt.Errorf("gvisor: bind: %w", err)
	}
	return nil
}

func copyEntry(from, to string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		return os.Mkdir(to, 0o755)
	case d.Type() == fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !d.Type().IsRegular():
		return nil
	}
	if err := os.Link(from, to); err == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fi.Mode().Perm()|0o444)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Bind has the contract of sandbox.Sandbox.Bind.
func (x *box) Bind(_ context.Context, m sandbox.Mount) error {
	if err := checkMount(m); err != nil {
		return err
	}
	x.hold.Lock()
	defer x.hold.Unlock()
	if x.closed.Load() {
		return fmt.Errorf("gvisor: bind: sandbox %q has ended", x.id)
	}
	return x.vessel.tree.bind(m)
}
