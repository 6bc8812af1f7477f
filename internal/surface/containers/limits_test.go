package containers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

// A limit of the project is a 429 that names it and says when to try again, as the official SDK reads it.
func TestLimitOfAProject(t *testing.T) {
	t.Parallel()
	c := newSite(t).client("small")
	upload(t, c, "a.csv", "1")
	_, err := c.Files.New(t.Context(), openai.FileNewParams{File: named{strings.NewReader("2"), "b.csv"}, Purpose: openai.FilePurposeUserData})
	e, ok := errors.AsType[*openai.Error](err)
	if !ok {
		t.Fatalf("got %v, want an API error", err)
	}
	if e.StatusCode != 429 || e.Type != "rate_limit_error" || e.Code != "project_limit_reached" || e.Response.Header.Get("Retry-After") != "60" ||
		!strings.Contains(e.Message, `project "small" may have 1 stored files (its limit "files")`) {
		t.Errorf("%d %s %s %v: %s", e.StatusCode, e.Type, e.Code, e.Response.Header, e.Message)
	}
}
