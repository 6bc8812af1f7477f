package soak

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long the test waits for an answer; only a failure reaches it.
const patience = 3 * time.Minute

// process is a gateway that runs.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{}
	err   bytes.Buffer

	mu    sync.Mutex
	waits map[int]chan answer
	next  int
}

// start starts a gateway and waits until it has reconciled.
func (p place) start() (*process, error) {
	g, ready, err := p.launch()
	if err != nil {
		return nil, err
	}
	if _, err := g.await(ready); err != nil {
		return nil, errors.Join(err, g.kill())
	}
	return g, nil
}

// launch starts a gateway, which gives an answer when it has reconciled.
func (p place) launch() (g *process, ready chan answer, err error) {
	spec, err := json.Marshal(p)
	if err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	g = &process{cmd: exec.Command(self), ended: make(chan struct{}), waits: map[int]chan answer{}}
	g.cmd.Env = append(os.Environ(), gatewayEnv+"="+string(spec))
	g.cmd.Stderr = &g.err
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	ready = g.wait(0)
	if err := g.cmd.Start(); err != nil {
		return nil, nil, err
	}
	go g.read(out)
	return g, ready, nil
}

func (g *process) wait(id int) chan answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := make(chan answer, 1)
	g.waits[id] = ch
	return ch
}

func (g *process) read(out io.Reader) {
	defer close(g.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			return // cut off by the kill
		}
		g.mu.Lock()
		ch := g.waits[a.ID]
		delete(g.waits, a.ID)
		g.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
}

// send asks for something, and returns where the answer will be.
func (g *process) send(r request) chan answer {
	g.mu.Lock()
	g.next++
	r.ID = g.next
	g.mu.Unlock()
	ch := g.wait(r.ID)
	line, _ := json.Marshal(r)            // of strings alone
	_, _ = g.in.Write(append(line, '\n')) // if it has ended, await says so
	return ch
}

var errEnded = errors.New("the gateway ended")

func (g *process) await(ch chan answer) (answer, error) {
	select {
	case a := <-ch:
		return a, nil
	case <-g.ended:
		select {
		case a := <-ch:
			return a, nil
		default:
			return answer{}, fmt.Errorf("%w: %s", errEnded, g.log())
		}
	case <-time.After(patience):
		return answer{}, fmt.Errorf("no answer within %s", patience)
	}
}

// log is what the gateway wrote, once it has ended.
func (g *process) log() string {
	_ = g.cmd.Wait() // it was killed
	return g.err.String()
}

// kill ends the gateway in the middle of whatever it does.
func (g *process) kill() error {
	err := g.cmd.Process.Kill()
	<-g.ended
	_ = g.cmd.Wait() // says that it was killed
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// stop ends the gateway as SIGTERM does: everything that is live hibernates.
func (g *process) stop() error {
	if err := g.in.Close(); err != nil {
		return err
	}
	select {
	case <-g.ended:
	case <-time.After(patience):
		return errors.Join(errors.New("the gateway does not end"), g.kill())
	}
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("the gateway's end: %w: %s", err, g.err.String())
	}
	return nil
}

// killSandbox kills the sandbox of a container, if it has one, as a crash would.
func (p place) killSandbox(container string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(p.sandboxes(), "runsc", container+"*.state"))
	if err != nil {
		return false, err
	}
	killed := false
	for _, path := range files {
		var state struct {
			Sandbox struct {
				Pid int `json:"pid"`
			} `json:"sandbox"`
		}
		data, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(data, &state) != nil || state.Sandbox.Pid <= 1 {
			continue // it is being made, or has ended
		}
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", state.Sandbox.Pid))
		if err != nil || !bytes.Contains(cmdline, []byte(container)) {
			continue
		}
		if err := syscall.Kill(state.Sandbox.Pid, syscall.SIGKILL); err == nil {
			killed = true
		}
	}
	return killed, nil
}

// leftovers are the processes, mounts, loop devices, cgroups and files that a gateway without containers has left.
func (p place) leftovers() []string {
	var left []string
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	for _, path := range procs {
		cmdline, err := os.ReadFile(path)
		if err == nil && bytes.Contains(cmdline, []byte(p.Dir+"/")) {
			left = append(left, "process "+path+": "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		left = append(left, err.Error())
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+p.Dir+"/") {
			left = append(left, "mount "+line)
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, path := range loops {
		img, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(img), p.Dir+"/") {
			left = append(left, "loop device "+path+" of "+string(img))
		}
	}
	name := sha256.Sum256([]byte(p.sandboxes())) // as package gvisor names its cgroup
	for _, pattern := range []string{"/sys/fs/cgroup/lathe-%s", "/sys/fs/cgroup/*/lathe-%s"} {
		dirs, _ := filepath.Glob(fmt.Sprintf(pattern, hex.EncodeToString(name[:6])))
		for _, dir := range dirs {
			left = append(left, "cgroup "+dir)
		}
	}
	for _, pattern := range []string{"containers/cntr_*", "sandboxes/runsc/*", "sandboxes/bundles/*", "sandboxes/mnt/*"} {
		files, _ := filepath.Glob(filepath.Join(p.Dir, pattern))
		left = append(left, files...)
	}
	err = filepath.WalkDir(filepath.Join(p.Dir, "blobs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			left = append(left, "bytes "+path)
		}
		return err
	})
	if err != nil {
		left = append(left, err.Error())
	}
	return left
}
