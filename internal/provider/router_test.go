package provider_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// echo is a provider that says which model it was asked for.
type echo struct{}

func (echo) Check(context.Context) error { return nil }

func (echo) Stream(_ context.Context, req *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) {
		if yield(turn.Started{Model: req.Model}, nil) {
			yield(turn.Finished{Reason: turn.ReasonStop}, nil)
		}
	}
}

func TestRouter(t *testing.T) {
	named := []provider.Model{{Name: "a", Upstream: "org/a", Provider: echo{}}, {Name: "b", Provider: echo{}}}
	rest := append(named[:2:2], provider.Model{Name: "*", Provider: echo{}})
	fixed := append(named[:2:2], provider.Model{Name: "*", Upstream: "one", Provider: echo{}})
	for _, tc := range []struct {
		name   string
		models []provider.Model
		ask    string
		want   string // "" for not found
	}{
		{"renamed", named, "a", "org/a"},
		{"same name", named, "b", "b"},
		{"unknown", named, "c", ""},
		{"none", named, "", ""},
		{"rest", rest, "c", "c"},
		{"rest does not hide others", rest, "a", "org/a"},
		{"rest with a name", fixed, "c", "one"},
		{"the star itself", rest, "*", ""},
		{"empty with a rest", rest, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := provider.NewRouter(tc.models)
			if err != nil {
				t.Fatal(err)
			}
			req := &turn.Request{Model: tc.ask}
			got, err := "", error(nil)
			for ev, e := range r.Stream(t.Context(), req) {
				if s, ok := ev.(turn.Started); ok {
					got = s.Model
				}
				err = e
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if e := turn.AsError(err); tc.want == "" && (err == nil || e.Kind != turn.KindNotFound || e.Code != "model_not_found" ||
				!strings.Contains(e.Message, "a, b") || strings.Contains(e.Message, "a, b, *")) {
				t.Errorf("error %+v", e)
			}
			if req.Model != tc.ask {
				t.Errorf("the request was changed to %q", req.Model)
			}
		})
	}
}

func TestNewRouterRefusesAllAtOnce(t *testing.T) {
	_, err := provider.NewRouter([]provider.Model{{Provider: echo{}}, {Name: "a"}, {Name: "b", Provider: echo{}}, {Name: "b", Provider: echo{}}})
	for _, want := range []string{"model 0 has no name", `"a" has no provider`, `"b" is there twice`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestOnce(t *testing.T) {
	s := provider.Once(echo{}.Stream(t.Context(), &turn.Request{}))
	for _, err := range s {
		if err != nil {
			t.Fatal(err)
		}
	}
	for ev, err := range s {
		if !errors.Is(err, provider.ErrUsedTwice) || ev != nil {
			t.Errorf("second range: %v, %v", ev, err)
		}
	}
}
