package guest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// maxSessions caps the processes of sessions that live at once, beside the default Python kernel, which is never ended for another.
// maxNames is how many names are remembered, so that a session that was ended can say so.
const (
	maxSessions = 8
	maxNames    = 256
)

// sessionKey names a session. Each has at most one call at a time.
type sessionKey struct{ kind, name string }

// session keeps state between calls.
type session interface {
	// run runs one call and returns the function that reports its end.
	run(c *call, start proto.StartCall) func()
	// close ends its process.
	close()
}

// sessions are those of a guest. The one that has been idle for longest makes room for a new one.
type sessions struct {
	cfg   *Config
	procs *processes

	mu     sync.Mutex
	byKey  map[sessionKey]*seat
	clock  int64 // counts uses
	closed bool
}

// seat is what is known of a session. Its session is nil where it had to make room.
type seat struct {
	session session
	busy    bool
	used    int64
}

// take returns the session of key for one call, after which give is called.
func (ss *sessions) take(key sessionKey) (session, error) {
	ss.mu.Lock()
	if ss.closed {
		ss.mu.Unlock()
		return nil, errors.New("the sandbox is shutting down")
	}
	s := ss.byKey[key]
	if s != nil && s.session != nil {
		ss.use(s)
		ss.mu.Unlock()
		return s.session, nil
	}
	victim, err := ss.makeRoom(key)
	if err != nil {
		ss.mu.Unlock()
		return nil, err
	}
	if s == nil {
		s = &seat{}
		ss.byKey[key] = s
	}
	s.session = ss.make(key, s.used > 0)
	ss.use(s)
	ss.mu.Unlock()
	if victim != nil {
		victim.close()
	}
	return s.session, nil
}

func (ss *sessions) use(s *seat) {
	ss.clock++
	s.busy, s.used = true, ss.clock
}

// give ends the use of a session that take returned.
func (ss *sessions) give(key sessionKey) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.byKey[key].busy = false
}

// makeRoom takes the longest idle session out if a new one would be too many, for the caller to close.
func (ss *sessions) makeRoom(key sessionKey) (session, error) {
	ss.forget()
	if key == defaultPython {
		return nil, nil
	}
	live := 0
	var idle *seat
	for k, s := range ss.byKey {
		if s.session == nil || k == defaultPython {
			continue
		}
		live++
		if !s.busy && (idle == nil || s.used < idle.used) {
			idle = s
		}
	}
	if live < maxSessions {
		return nil, nil
	}
	if idle == nil {
		return nil, fmt.Errorf("%d sessions run at once, which is the most that a container may have: wait until one has ended", live)
	}
	victim := idle.session
	idle.session = nil
	return victim, nil
}

// forget keeps the number of remembered names bounded.
func (ss *sessions) forget() {
	for len(ss.byKey) >= maxNames {
		var oldest sessionKey
		var used int64
		for k, s := range ss.byKey {
			if s.session == nil && (used == 0 || s.used < used) {
				oldest, used = k, s.used
			}
		}
		delete(ss.byKey, oldest)
	}
}

var defaultPython = sessionKey{kind: proto.Python}

// make makes the session of key. lost says that there was one of that name which had to make room.
func (ss *sessions) make(key sessionKey, lost bool) session {
	if key.kind == proto.Bash {
		return &shell{cfg: ss.cfg, procs: ss.procs, lost: lost}
	}
	return &interpreter{cfg: ss.cfg, procs: ss.procs, lang: languages[key.kind], lost: lost}
}

// kernels are those of a language that live; no call of theirs may run.
func (ss *sessions) kernels(kind string) []*interpreter {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var live []*interpreter
	for key, s := range ss.byKey {
		if in, ok := s.session.(*interpreter); ok && key.kind == kind && in.kernel != nil && !in.kernel.dead() {
			live = append(live, in)
		}
	}
	return live
}

// close ends all sessions; calls must have ended.
func (ss *sessions) close() {
	ss.mu.Lock()
	ss.closed = true
	var all []session
	for _, s := range ss.byKey {
		if s.session != nil {
			all = append(all, s.session)
		}
	}
	ss.mu.Unlock()
	for _, s := range all {
		s.close()
	}
}
