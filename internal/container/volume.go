package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/tool"
)

const (
	// dataMount and homeMount are where programs see the two folders of a volume.
	dataMount = "/mnt/data"
	homeMount = "/home/user"
	// programID is the uid and gid of all code in a sandbox.
	programID = 1000
	// minDisk is what an ext4 file system with a journal needs to be of use.
	minDisk = 16 << 20
)

// volumes makes and mounts the places of containers' files:
//
//	<dir>/<container>/volume.img   sparse ext4 image, where images can be mounted
//	<dir>/<container>/vol/data     /mnt/data
//	<dir>/<container>/vol/home     /home/user
//	<dir>/<container>/memory/<id>  hibernated memory as the backend wrote it
//	<dir>/<container>/checkpoints/<id>  volume and memory as they were once
//	<dir>/<container>/spare        the owner of one that has no row yet
//	<dir>/<container>/ran          exists once code has run: a new interpreter is then a restarted one
//
// An image gives programs ENOSPC at the disk limit, for bytes and for inodes. Where it cannot be mounted (no root, no loop devices, no
// mkfs.ext4), vol is a plain folder and the limit does not hold.
type volumes struct {
	dir    string
	disk   int64
	images bool
	why    error // why images cannot be used
	mkfs   string

	mu       sync.Mutex
	patterns map[int64]*os.File // empty file systems by size
}

// volume is a mounted one. data stays open until unmount.
type volume struct {
	id, path string
	data     *os.Root
	mounted  bool
}

var containerID = regexp.MustCompile(`^cntr_[0-9a-f]{32}$`)

func newVolumes(ctx context.Context, dir string, disk int64, plain bool) *volumes {
	v := &volumes{dir: dir, disk: disk}
	if plain {
		v.why = errors.New("plain folders were asked for")
		return v
	}
	v.mkfs, v.why = findMkfs()
	if v.why == nil {
		v.why = v.probe(ctx)
	}
	v.images = v.why == nil
	return v
}

func findMkfs() (string, error) {
	if path, err := exec.LookPath("mkfs.ext4"); err == nil {
		return path, nil
	}
	for _, path := range []string{"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"} { // not on everyone's PATH
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("mkfs.ext4 is not installed")
}

// probe makes, mounts and removes a small image: the one sure way to know.
func (v *volumes) probe(ctx context.Context) error {
	dir, err := os.MkdirTemp(v.dir, "probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	img, mnt := filepath.Join(dir, "volume.img"), filepath.Join(dir, "vol")
	if err := v.makeImage(ctx, img, minDisk); err != nil {
		return err
	}
	if err := os.Mkdir(mnt, 0o700); err != nil {
		return err
	}
	if err := mountImage(img, mnt); err != nil {
		return err
	}
	return unmountImage(mnt)
}

// CheckVolumes says, for lathe doctor, whether the disk limit holds on this machine. It makes, mounts and removes a small volume in dir.
func CheckVolumes(ctx context.Context, dir string, disk int64) sandbox.Finding {
	v := newVolumes(ctx, dir, disk, false)
	defer v.close() //nolint:errcheck // what is open is only read
	return v.finding()
}

func (v *volumes) finding() sandbox.Finding {
	if v.images {
		return sandbox.Finding{Name: "disk limit", Level: "ok", Detail: "disk images, " + size(v.disk) + " each: programs get ENOSPC beyond it"}
	}
	return sandbox.Finding{
		Name: "disk limit", Level: "warn",
		Detail: fmt.Sprintf("plain folders: the size of each file is limited, their sum to %s is not (%v)", size(v.disk), v.why),
		Mend:   "run as root with loop devices and mkfs.ext4 (Debian: e2fsprogs)",
	}
}

func (v *volumes) folder(id string) (string, error) {
	if !containerID.MatchString(id) {
		return "", fmt.Errorf("container: %q is no id of ours", id)
	}
	return filepath.Join(v.dir, id), nil
}

// mount makes the volume if there is none and mounts it.
func (v *volumes) mount(ctx context.Context, id string) (*volume, error) {
	dir, err := v.folder(id)
	if err != nil {
		return nil, err
	}
	vol := &volume{id: id, path: filepath.Join(dir, "vol")}
	if err := v.unreplace(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(vol.path, 0o700); err != nil {
		return nil, err
	}
	img := filepath.Join(dir, "volume.img")
	_, err = os.Stat(img)
	hasImage := err == nil
	// A container keeps the kind of volume that it was made with: its files are there.
	if _, err := os.Stat(filepath.Join(vol.path, "data")); v.images && !hasImage && err != nil {
		if err := v.makeImage(ctx, img, v.disk); err != nil {
			return nil, err
		}
		hasImage = true
	}
	if hasImage {
		if err := mountImage(img, vol.path); err != nil {
			return nil, fmt.Errorf("mount the volume of %s: %w", id, err)
		}
		vol.mounted = true
	}
	if err := vol.prepare(); err != nil {
		return nil, errors.Join(err, v.unmount(vol))
	}
	return vol, nil
}

// makeImage makes an empty file system. It gets its name only when it is whole, so that a crash leaves none that is half made.
func (v *volumes) makeImage(ctx context.Context, img string, bytes int64) error {
	part := img + ".part"
	from, err := v.pattern(ctx, filepath.Dir(img), bytes)
	if err == nil {
		err = copyHoles(part, from)
	}
	if err == nil {
		err = syncFile(part)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(part))
	}
	return os.Rename(part, img)
}

// pattern returns an empty file system that has no name any more, for others to be copied from: that takes a tenth of the time of making one.
// They have the same UUID, which nobody asks for.
func (v *volumes) pattern(ctx context.Context, dir string, bytes int64) (*os.File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.patterns[bytes]; f != nil {
		return f, nil
	}
	path := filepath.Join(dir, "pattern.img")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer os.Remove(path)
	if err := f.Truncate(bytes); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// A small journal leaves the space to the program; the inode tables are written by the kernel when they are needed.
	out, err := exec.CommandContext(ctx, v.mkfs, "-q", "-F", "-m", "0", "-b", "4096", "-J", "size=4", "-E",
		"lazy_itable_init=1,lazy_journal_init=1,nodiscard", path).CombinedOutput()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mkfs.ext4: %w: %s", err, out), f.Close())
	}
	if v.patterns == nil {
		v.patterns = map[int64]*os.File{}
	}
	v.patterns[bytes] = f
	return f, nil
}

// close gives up what volumes are made from.
func (v *volumes) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var errs []error
	for _, f := range v.patterns {
		errs = append(errs, f.Close())
	}
	v.patterns = nil
	return errors.Join(errs...)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// prepare makes the two folders and opens the one that programs' results are in.
func (vol *volume) prepare() error {
	for _, name := range []string{"data", "home"} {
		dir := filepath.Join(vol.path, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		// Each time, since a program may have locked itself out.
		if err := giveToProgram(dir); err != nil {
			return err
		}
	}
	var err error
	vol.data, err = os.OpenRoot(filepath.Join(vol.path, "data"))
	return err
}

// giveToProgram makes a folder writable for code in a sandbox. An ordinary user cannot give it away, so there it is writable for all;
// the folders above it are 0700.
func giveToProgram(dir string) error {
	if os.Geteuid() == 0 && os.Chown(dir, programID, programID) == nil {
		return os.Chmod(dir, 0o755)
	}
	return os.Chmod(dir, 0o777)
}

// unmount is the inverse of mount; nil is allowed.
func (v *volumes) unmount(vol *volume) error {
	if vol == nil {
		return nil
	}
	var err error
	if vol.data != nil {
		err = vol.data.Close()
	}
	if vol.mounted {
		err = errors.Join(err, unmountImage(vol.path))
	}
	return err
}

// remove deletes the folder of a container, whose volume is not mounted.
func (v *volumes) remove(id string) error {
	dir, err := v.folder(id)
	if err != nil {
		return err
	}
	return removeAll(dir)
}

// removeAll is os.RemoveAll, also of folders to which a program has left nobody any right, as far as their owner can help it.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			err = os.Chmod(path, 0o700) // before it is read
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(dir))
}

// mounts are what a sandbox is given of the volume.
func (vol *volume) mounts() []sandbox.Mount {
	return []sandbox.Mount{
		{Source: filepath.Join(vol.path, "data"), Target: dataMount},
		{Source: filepath.Join(vol.path, "home"), Target: homeMount},
		{Target: tool.SkillsRoot, Hub: true, ReadOnly: true},
	}
}

// spareOf is the file that names the owner of a spare container, which has no row to do so.
func (v *volumes) spareOf(id string) string { return filepath.Join(v.dir, id, "spare") }

// doubtFile exists from when a volume was replaced until it has been looked at: sizes and times then do not tell which version of a file
// lies there.
const doubtFile = "doubt"

func (v *volumes) doubts(id string) bool {
	_, err := os.Stat(filepath.Join(v.dir, id, doubtFile))
	return err == nil
}

func (v *volumes) noDoubt(id string) error {
	if err := os.Remove(filepath.Join(v.dir, id, doubtFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ran says whether code has run in the container before; setRan remembers it.
func (v *volumes) ran(id string) bool {
	_, err := os.Stat(filepath.Join(v.dir, id, "ran"))
	return err == nil
}

func (v *volumes) setRan(id string) error {
	return os.WriteFile(filepath.Join(v.dir, id, "ran"), nil, 0o600)
}
