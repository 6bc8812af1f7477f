package messages

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

// docs is the page that says what becomes of each field, block and event.
const docs = "../../../docs/anthropic.md"

// TestDocsAreComplete: what Anthropic's SDK knows stands in the page, in the section where it belongs. A new release of the SDK that knows
// more fails here.
func TestDocsAreComplete(t *testing.T) {
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		section string
		known   []string
	}{
		{"Request fields", fieldsOf[anthropic.MessageNewParams]()},
		{"Request fields", fieldsOf[anthropic.BetaMessageNewParams]()},
		{"Request fields", fieldsOf[anthropic.MessageCountTokensParams]()},
		{"Tools", variantsOf[anthropic.ToolUnionParam]()},
		{"Tools", variantsOf[anthropic.BetaToolUnionParam]()},
		{"Tools", fieldsOf[anthropic.ToolParam]()},
		{"Tools", variantsOf[anthropic.ToolChoiceUnionParam]()},
		{"Blocks in a request", variantsOf[anthropic.ContentBlockParamUnion]()},
		{"Blocks in a request", variantsOf[anthropic.BetaContentBlockParamUnion]()},
		{"Blocks in a request", unionsOf[anthropic.ToolResultBlockParamContentUnion]()},
		{"Blocks in an answer", answersOf[anthropic.ContentBlockUnion]()},
		{"Blocks in an answer", answersOf[anthropic.BetaContentBlockUnion]()},
		{"Blocks in an answer", answersOf[anthropic.TextCitationUnion]()},
		{"Events", answersOf[anthropic.MessageStreamEventUnion]()},
		{"Events", answersOf[anthropic.RawContentBlockDeltaUnion]()},
		{"Events", answersOf[anthropic.BetaRawContentBlockDeltaUnion]()},
		{"Answer fields", fieldsOf[anthropic.Message]()},
		{"Answer fields", fieldsOf[anthropic.BetaMessage]()},
		{"Answer fields", fieldsOf[anthropic.Usage]()},
		{"Answer fields", fieldsOf[anthropic.BetaUsage]()},
		{"Answer fields", fieldsOf[anthropic.RefusalStopDetails]()},
		{"Files", fieldsOf[anthropic.FileMetadata]()},
		{"Files", fieldsOf[anthropic.BetaFileMetadata]()},
		{"Models", fieldsOf[anthropic.ModelInfo]()},
	} {
		if len(tt.known) == 0 {
			t.Errorf("%s: the SDK knows nothing of it any more", tt.section)
		}
		text := sectionOf(string(page), tt.section)
		for _, name := range tt.known {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("%s has no `%s` under %q", docs, name, tt.section)
			}
		}
	}
	for _, reason := range []string{"end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded", "compaction"} {
		if !strings.Contains(sectionOf(string(page), "Answer fields"), "`"+reason+"`") {
			t.Errorf("no stop reason %s", reason)
		}
	}
	for _, b := range served {
		if !strings.Contains(sectionOf(string(page), "Headers"), "`"+b+"`") {
			t.Errorf("no beta %s", b)
		}
	}
	for _, n := range complaints {
		if !regexp.MustCompile(`(?m)^\| ` + n + ` \|`).MatchString(sectionOf(string(page), "What others stumbled over")) {
			t.Errorf("nothing is said of complaint %s", n)
		}
	}
}

// complaints are those of section 8 of the wire document.
var complaints = strings.Fields("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31")

// sectionOf is the text under a heading of the second level.
func sectionOf(page, heading string) string {
	_, text, _ := strings.Cut(page, "\n## "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// fieldsOf are the names that a struct has in JSON, or as headers.
func fieldsOf[T any]() []string {
	var out []string
	typ := reflect.TypeFor[T]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if header, _, _ := strings.Cut(typ.Field(i).Tag.Get("header"), ","); header != "" {
			continue // package upstream decides on headers
		}
		if name != "" && name != "-" {
			out = append(out, name)
		}
	}
	return out
}

// variantsOf are the types of the structs that a union of a request points to.
func variantsOf[T any]() []string {
	var out []string
	typ := reflect.TypeFor[T]()
	for i := range typ.NumField() {
		if f := typ.Field(i); strings.HasPrefix(f.Name, "Of") && f.Type.Kind() == reflect.Pointer {
			out = append(out, typesOf(f.Type.Elem())...)
		}
	}
	return out
}

func unionsOf[T any]() []string { return variantsOf[T]() }

// answersOf are the types of the structs that a union of an answer can be seen as.
func answersOf[T any]() []string {
	var out []string
	typ := reflect.TypeFor[T]()
	for i := range typ.NumMethod() {
		if m := typ.Method(i); strings.HasPrefix(m.Name, "As") && m.Type.NumOut() == 1 && m.Type.Out(0).Kind() == reflect.Struct {
			out = append(out, typesOf(m.Type.Out(0))...)
		}
	}
	return out
}

func typesOf(t reflect.Type) []string {
	f, ok := t.FieldByName("Type")
	if !ok {
		return nil
	}
	if kind := f.Tag.Get("default"); kind != "" {
		return []string{kind}
	}
	return nil
}

func TestTypesOfTheSDKAreFound(t *testing.T) {
	if got := variantsOf[anthropic.ContentBlockParamUnion](); !slices.Contains(got, "container_upload") || !slices.Contains(got, "text") {
		t.Errorf("blocks %q", got)
	}
	if got := answersOf[anthropic.MessageStreamEventUnion](); !slices.Contains(got, "message_delta") {
		t.Errorf("events %q", got)
	}
	if got := fieldsOf[anthropic.MessageNewParams](); !slices.Contains(got, "max_tokens") || !slices.Contains(got, "container") {
		t.Errorf("fields %q", got)
	}
}
