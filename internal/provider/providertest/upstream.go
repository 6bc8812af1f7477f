package providertest

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/turn"
	up "github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// Upstream is the suite of a provider that calls a model's server. connect makes one for the server s, which answers well to Requests.
func Upstream(connect func(t *testing.T, s *up.Server) provider.Provider, well up.Answer) Suite {
	start := func(t *testing.T, answer func(*up.Request) up.Answer) provider.Provider {
		s := up.Start(t)
		s.Answer(answer)
		return connect(t, s)
	}
	always := func(a up.Answer) func(t *testing.T) provider.Provider {
		return func(t *testing.T) provider.Provider { return start(t, func(*up.Request) up.Answer { return a }) }
	}
	ask := turn.Request{Model: "m", Items: []turn.Item{turn.Message{Role: turn.User, Parts: []turn.Part{turn.Text{Text: "hi"}}}}}
	withTools := ask.Clone()
	withTools.Tools = []turn.Tool{{Name: "f", Parameters: json.RawMessage(`{"type":"object"}`)}}
	return Suite{
		Requests: map[string]*turn.Request{"text": &ask, "tools": withTools},
		New:      always(well),
		Failing:  always(up.Fail(http.StatusInternalServerError, "no")),
		Endless: func(t *testing.T) (provider.Provider, <-chan struct{}) {
			gone := make(chan struct{})
			p := start(t, func(r *up.Request) up.Answer {
				go func() {
					<-r.Gone()
					close(gone)
				}()
				return up.Do(up.Text("a"), up.Wait(make(chan struct{})))
			})
			return p, gone
		},
	}
}
