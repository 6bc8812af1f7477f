package auth

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestRequest(t *testing.T) {
	t.Parallel()
	alice := Principal{Name: "alice", Project: "research"}
	ops := Principal{Name: "ops", Project: "default", Admin: true}
	keys := NewKeys([]Key{{"sk-alice-1234", alice}, {"sk-ops-1234", ops}})
	tests := []struct {
		name    string
		headers map[string]string
		want    Principal
		fails   string
	}{
		{"bearer", map[string]string{"Authorization": "Bearer sk-alice-1234"}, alice, ""},
		{"any case of the scheme", map[string]string{"Authorization": "bearer  sk-ops-1234"}, ops, ""},
		{"x-api-key", map[string]string{"X-Api-Key": "sk-ops-1234"}, ops, ""},
		{"wrong key", map[string]string{"Authorization": "Bearer sk-alice-1235"}, Principal{}, "not one of this server's keys"},
		{"part of a key", map[string]string{"Authorization": "Bearer sk-alice"}, Principal{}, "not one of this server's keys"},
		{"wrong bearer is not mended by x-api-key", map[string]string{"X-Api-Key": "sk-ops-1234", "Authorization": "Bearer no"},
			Principal{}, "different API keys"},
		{"basic", map[string]string{"Authorization": "Basic c2s6"}, Principal{}, "must be: Bearer"},
		{"empty bearer", map[string]string{"Authorization": "Bearer "}, Principal{}, "must be: Bearer"},
		{"nothing", nil, Principal{}, "no API key"},
		{"both, the same", map[string]string{"Authorization": "Bearer sk-alice-1234", "X-Api-Key": "sk-alice-1234"}, alice, ""},
		{"both, different", map[string]string{"Authorization": "Bearer sk-alice-1234", "X-Api-Key": "sk-ops-1234"}, Principal{}, "different API keys"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("GET", "/v1/models", nil)
			for name, value := range test.headers {
				r.Header.Set(name, value)
			}
			got, err := keys.Request(r)
			if got != test.want {
				t.Errorf("principal %+v, want %+v", got, test.want)
			}
			if (err != nil) != (test.fails != "") {
				t.Fatalf("error %v, want %q", err, test.fails)
			}
			if err == nil {
				return
			}
			e := turn.AsError(err)
			if e.Kind != turn.KindUnauthenticated || !strings.Contains(e.Message, test.fails) || strings.Contains(e.Message, "sk-") {
				t.Errorf("error %+v, want %q and no key in it", e, test.fails)
			}
		})
	}
}

func TestNoKeysKnowNobody(t *testing.T) {
	t.Parallel()
	for _, keys := range []*Keys{nil, NewKeys(nil)} {
		if !keys.Empty() {
			t.Error("no keys, and yet not Empty")
		}
	}
	if _, ok := NewKeys(nil).Find(""); ok {
		t.Error("an empty key is found among none")
	}
}
