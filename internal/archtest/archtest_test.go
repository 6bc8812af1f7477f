package archtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestThisTree(t *testing.T) {
	t.Parallel()
	breaches, err := Check(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaches {
		t.Error(b)
	}
}

// TestEachRuleCanFail puts one breach into a tree that is right otherwise.
func TestEachRuleCanFail(t *testing.T) {
	t.Parallel()
	const doc = "// Package x is a thing.\n"
	use := func(pkg string) string {
		return doc + "package x\n\nimport _ \"" + Module + "/internal/" + pkg + "\"\n"
	}
	tests := []struct {
		name, file, source string
		want               []string
	}{
		{"down", "internal/agent/a.go", use("turn"), nil},
		{"up", "internal/turn/a.go", use("agent"),
			[]string{"internal/turn/a.go:4: internal/turn may not import agent (see archtest.Imports)"}},
		{"surface to provider's implementation", "internal/surface/chat/a.go", use("provider/openaichat"),
			[]string{"internal/surface/chat/a.go:4: internal/surface/chat may not import provider/openaichat (see archtest.Imports)"}},
		{"provider to surface", "internal/provider/openaichat/a.go", use("surface/oai"),
			[]string{"internal/provider/openaichat/a.go:4: internal/provider/openaichat may not import surface/oai (see archtest.Imports)"}},
		{"surface to wire", "internal/surface/chat/a.go", use("wire/oaichat"), nil},
		{"surface to another's wire", "internal/surface/chat/a.go", use("wire/oairesponses"),
			[]string{"internal/surface/chat/a.go:4: internal/surface/chat may not import wire/oairesponses (see archtest.Imports)"}},
		{"test help in code", "internal/container/a.go", use("sandbox/fake"),
			[]string{"internal/container/a.go:4: internal/container imports sandbox/fake, which is for tests only"}},
		{"test help in the wiring", "cmd/lathe/wire.go", use("upstreamtest"),
			[]string{"cmd/lathe/wire.go:4: cmd/lathe imports upstreamtest, which is for tests only"}},
		{"anything in a test", "internal/container/a_test.go", use("sandbox/fake"), nil},
		{"implementation in the wiring", "cmd/lathe/wire_linux.go", use("sandbox/gvisor"), nil},
		{"implementation in a command", "cmd/lathe/serve.go", use("sandbox/gvisor"),
			[]string{"cmd/lathe/serve.go:4: cmd/lathe/serve.go imports the implementation sandbox/gvisor: only wire.go does"}},
		{"contract in a command", "cmd/lathe/serve.go", use("sandbox"), nil},
		{"new package", "internal/novel/a.go", use("turn"), []string{"internal/novel/a.go:2: internal/novel has no row in archtest.Imports"}},
		{"no package comment", "internal/turn/a.go", "package turn\n", []string{
			"internal/turn/a.go:1: package internal/turn has no package comment: say what it is, what it is not, who may import it"}},
		{"bare todo", "internal/turn/a.go", doc + "package x\n\n// TODO: later\nvar A int\n",
			[]string{"internal/turn/a.go:4: a TODO without a reason: write TODO(why it waits): what is to be done"}},
		{"todo with a reason", "internal/turn/a.go", doc + "package x\n\n// TODO(needs Go 1.28): drop the copy below\nvar A int\n", nil},
		{"environment", "internal/turn/a.go", doc + "package x\n\nimport \"os\"\n\nvar A = os.Getenv(\"A\")\n",
			[]string{"internal/turn/a.go:6: os.Getenv: only package config reads the environment"}},
		{"environment in config", "internal/config/a.go", doc + "package x\n\nimport \"os\"\n\nvar A = os.Getenv(\"A\")\n", nil},
		{"init", "internal/turn/a.go", doc + "package x\n\nfunc init() {}\n",
			[]string{"internal/turn/a.go:4: an init function: the wiring calls what must be called"}},
		{"long", "internal/turn/a.go", doc + "package x\n" + strings.Repeat("\n", maxLines),
			[]string{fmt.Sprintf("internal/turn/a.go:2: %d lines: split what has more than one subject (at most %d)", maxLines+2, maxLines)}},
		{"other modules", "runsc/main.go", "package main\n", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := Check(fstest.MapFS{test.file: {Data: []byte(test.source)}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRowsPointDown: a table with a cycle would allow what the compiler refuses, and hide that a row is wrong.
func TestRowsPointDown(t *testing.T) {
	t.Parallel()
	const visiting, done = 1, 2
	state := map[string]int{}
	var visit func(pkg string)
	visit = func(pkg string) {
		if state[pkg] == done {
			return
		}
		if state[pkg] == visiting {
			t.Fatalf("a cycle through %s", pkg)
		}
		state[pkg] = visiting
		for _, target := range Imports[pkg] {
			if _, known := Imports[target]; !known {
				t.Errorf("the row of %s names %s, which has none", pkg, target)
			}
			if strings.HasPrefix(target, "surface/") && target != "surface/oai" && target != "surface/anthropic" {
				t.Errorf("%s may import the surface %s", pkg, target)
			}
			visit(target)
		}
		state[pkg] = done
	}
	for pkg := range Imports {
		visit(pkg)
	}
}
