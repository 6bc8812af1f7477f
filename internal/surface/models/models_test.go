package models_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/surface/models"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// silent is a provider that is never asked.
type silent struct{}

func (silent) Stream(context.Context, *turn.Request) turn.Stream { return nil }
func (silent) Check(context.Context) error                       { return nil }

func client(t *testing.T, names ...string) openai.Client {
	t.Helper()
	var all []provider.Model
	for i, name := range names {
		all = append(all, provider.Model{Name: name, Provider: silent{}, ProviderName: "demo", Created: int64(1700000000 + i)})
	}
	router, err := provider.NewRouter(all)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(models.New(models.Config{Router: router}))
	t.Cleanup(srv.Close)
	return openai.NewClient(option.WithBaseURL(srv.URL+"/v1"), option.WithAPIKey("key"), option.WithMaxRetries(0))
}

func TestList(t *testing.T) {
	for _, tc := range []struct{ models, want []string }{
		{nil, nil},
		{[]string{"*"}, nil},
		{[]string{"b", "*", "openai/gpt-oss-120b"}, []string{"b", "openai/gpt-oss-120b"}},
	} {
		c := client(t, tc.models...)
		page, err := c.Models.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range page.Data {
			got = append(got, m.ID)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || page.Data == nil {
			t.Errorf("%q (-want +got):\n%s%s", tc.models, diff, page.RawJSON())
		}
	}
}

func TestGet(t *testing.T) {
	c := client(t, "b", "openai/gpt-oss-120b")
	m, err := c.Models.Get(t.Context(), "openai/gpt-oss-120b")
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "openai/gpt-oss-120b" || m.Created != 1700000001 || m.OwnedBy != "demo" || m.Object != "model" {
		t.Errorf("got %s", m.RawJSON())
	}
	_, err = c.Models.Get(t.Context(), "other")
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != 404 || e.Code != "model_not_found" {
		t.Errorf("an unknown model: %v", err)
	}

	c = client(t, "*")
	if m, err := c.Models.Get(t.Context(), "any/thing"); err != nil || m.ID != "any/thing" {
		t.Errorf("with *: %v, %v", m, err)
	}
	if _, err := c.Models.Get(t.Context(), "*"); err == nil {
		t.Error("* itself is a model")
	}
}
