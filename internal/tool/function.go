package tool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Function is a tool of the client that programs may call: Name is what Python calls it, Tool what everybody else does.
type Function struct{ Name, Tool string }

// Functions are those that programs of this request may call, in the order of its tools.
func (s *Set) Functions() []Function { return s.functions }

// functionsOf names the programmatic tools. A name is the tool's own where Python can have it: a name that would hide a keyword or a
// builtin gets an underscore, and so does each character that no identifier has.
func functionsOf(clients []turn.Tool) []Function {
	var out []Function
	taken := map[string]bool{}
	for _, t := range clients {
		if !t.Programmatic {
			continue
		}
		name := identifier(t.Name)
		for base, i := name, 2; taken[name]; i++ {
			name = fmt.Sprintf("%s_%d", base, i)
		}
		taken[name] = true
		out = append(out, Function{Name: name, Tool: t.Name})
	}
	return out
}

func identifier(name string) string {
	name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '_'
	}, name)
	switch {
	case name == "", name[0] >= '0' && name[0] <= '9':
		return "_" + name
	case slices.Contains(reserved, name):
		return name + "_"
	}
	return name
}

// reserved are Python's keywords, and the builtins and names that programs cannot do without.
var reserved = strings.Fields(`False None True and as assert async await break class continue def del elif else except finally for from
	global if import in is lambda nonlocal not or pass raise return try while with yield match case type
	abs all any bool bytearray bytes callable chr compile complex delattr dict dir display divmod enumerate eval exec exit filter float
	format frozenset getattr globals hasattr hash help hex id input int isinstance issubclass iter len list locals map max memoryview min
	next object oct open ord pow print property quit range repr reversed round set setattr slice sorted staticmethod str sum super tuple
	vars zip asyncio json os sys __name__ __builtins__ _`)

// maxFunctionText bounds what the python tool says of one function.
const maxFunctionText = 16 << 10

// functionsText tells the model of the functions.
func (s *Set) functionsText() string {
	if len(s.functions) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(" The code may call these async functions; each takes one dict and returns the result as a str. Await them at the top level " +
		"of the code or in an async function, and call several at once with asyncio.gather. Print what matters: only what the code prints is " +
		"returned to you, not the results themselves.")
	for _, f := range s.functions {
		t := s.clients[f.Tool]
		fmt.Fprintf(&b, "\n\nasync def %s(args: dict) -> str", f.Name)
		if t.Description != "" {
			b.WriteString("\n" + clip(t.Description, maxFunctionText))
		}
		if len(t.Parameters) > 0 {
			b.WriteString("\nJSON schema of args: " + clip(string(t.Parameters), maxFunctionText))
		}
	}
	return b.String()
}
