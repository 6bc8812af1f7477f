package link

import (
	"context"
	"errors"
	"regexp"
	"sync"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// session is what calls queue for.
type session struct {
	kind sandbox.Kind
	name string
}

// keeps says whether the session has state that is lost when it is killed.
func (s session) keeps() bool { return s.kind != sandbox.Bash || s.name != "" }

var sessionForm = regexp.MustCompile(`^[A-Za-z0-9_-]{0,64}$`)

var errEnded = errors.New("the link has ended")

// slots gives each session to one call at a time, in order of arrival. It holds only those that are in use.
type slots struct {
	mu   sync.Mutex
	used map[session]*slot
}

type slot struct {
	taken chan struct{} // has room for one
	users int           // the holder and those who wait
}

// take waits for the session. The error is ctx's, or errEnded once done is closed.
func (s *slots) take(ctx context.Context, done <-chan struct{}, key session) (free func(), err error) {
	s.mu.Lock()
	if s.used == nil {
		s.used = map[session]*slot{}
	}
	sl := s.used[key]
	if sl == nil {
		sl = &slot{taken: make(chan struct{}, 1)}
		s.used[key] = sl
	}
	sl.users++
	s.mu.Unlock()
	select {
	case sl.taken <- struct{}{}:
		return func() { <-sl.taken; s.leave(key, sl) }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-done:
		err = errEnded
	}
	s.leave(key, sl)
	return nil, err
}

func (s *slots) leave(key session, sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl.users--; sl.users == 0 {
		delete(s.used, key)
	}
}
