package turn

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRuns(t *testing.T) {
	in := []Output{
		{Stream: "stdout", Text: "a"}, {Stream: "stderr", Text: "b"}, {Stream: "display", Text: "c\n"}, {Stream: StreamResult, Text: "1"},
		{Stream: "stdout", Text: "d"}, {MIME: "image/png"}, {Stream: "stdout", Text: "e"}, {Text: "[a note]"}, {Text: "[another]"}, {Stream: "stderr", Text: "f"},
	}
	want := []Output{
		{Text: "abc\n"}, {Stream: StreamResult, Text: "1"}, {Text: "d"}, {MIME: "image/png"}, {Text: "e"}, {Text: "[a note]"}, {Text: "[another]"}, {Text: "f"},
	}
	if diff := cmp.Diff(want, Runs(in)); diff != "" {
		t.Error(diff)
	}
	if Runs(nil) != nil || Runs([]Output{}) == nil {
		t.Error("nil means that a client did not get the outputs, and must stay so")
	}
	if got := (HostedCall{Outputs: in}).Stdout(); got != "ac\n1de[a note][another]" {
		t.Errorf("stdout %q", got)
	}
	if got := (HostedCall{Outputs: in, Failure: "died"}).Stderr(); got != "bf\ndied\n" {
		t.Errorf("stderr %q", got)
	}
}

func TestSameOutputs(t *testing.T) {
	stored := []Output{{Stream: "stdout", Text: "a"}, {Stream: "stderr", Text: "b"}, {Stream: "stdout", Text: "c"}}
	for name, test := range map[string]struct {
		client []Output
		want   bool
	}{
		"the same":        {stored, true},
		"runs":            {[]Output{{Text: "abc"}}, true},
		"streams":         {[]Output{{Stream: "stdout", Text: "ac"}, {Stream: "stderr", Text: "b"}}, true},
		"other text":      {[]Output{{Text: "ab"}}, false},
		"other streams":   {[]Output{{Stream: "stdout", Text: "acb"}}, false},
		"a stream is out": {[]Output{{Stream: "stdout", Text: "ac"}}, false},
		"empty":           {[]Output{}, false},
	} {
		if got := SameOutputs(HostedCall{Outputs: test.client}, HostedCall{Outputs: stored}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
