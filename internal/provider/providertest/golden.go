package providertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/goldentest"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// DecodeGolden translates each archive of testdata/decode: an answer, one frame a line, and the file events that it becomes.
func DecodeGolden(t *testing.T, decode func(data string) []byte) {
	t.Helper()
	goldentest.Each(t, "decode", func(_ *testing.T, in []byte) []txtar.File {
		return []txtar.File{{Name: "events", Data: decode(string(in))}}
	})
}

// EncodeGolden compares a request's body, or the error in its place, with the archive of that name in testdata/encode. pins is what the
// archive says of itself.
func EncodeGolden(t *testing.T, name, pins string, body []byte, err error) {
	t.Helper()
	var got bytes.Buffer
	if err != nil {
		fmt.Fprintf(&got, "error: %v\n", err)
	} else {
		if err := json.Indent(&got, body, "", "  "); err != nil {
			t.Fatal(err)
		}
		got.WriteByte('\n')
	}
	goldentest.Compare(t, filepath.Join("testdata", "encode", name+".txtar"),
		&txtar.Archive{Comment: []byte(pins + "\n"), Files: []txtar.File{{Name: "request.json", Data: got.Bytes()}}})
}

// Decoder is what DecodeLines needs of an upstream.Decoder.
type Decoder interface {
	Push(data []byte) ([]turn.Event, error)
	End() ([]turn.Event, error)
}

// DecodeLines pushes one frame a line and ends the answer. It returns the events before the first error, which may be that they are not
// well formed.
func DecodeLines(d Decoder, data string) ([]turn.Event, error) {
	var events []turn.Event
	var v turn.Validator
	take := func(evs []turn.Event, err error) error {
		if err != nil {
			return err
		}
		for _, ev := range evs {
			if err := v.Push(ev); err != nil {
				return err
			}
		}
		events = append(events, evs...)
		return nil
	}
	for line := range strings.Lines(data) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := take(d.Push([]byte(line))); err != nil {
			return events, err
		}
	}
	err := take(d.End())
	return events, err
}

// NewID returns a function that mints prefix0, prefix1 ...
func NewID(prefix string) func() string {
	minted := 0
	return func() string {
		minted++
		return fmt.Sprintf("%s%d", prefix, minted-1)
	}
}

// Dump is one event a line, without the fields that are zero.
func Dump(events []turn.Event) []byte {
	var b bytes.Buffer
	for _, ev := range events {
		dump(&b, reflect.ValueOf(ev))
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func dump(b *bytes.Buffer, v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		dump(b, v.Elem())
	case reflect.Struct:
		b.WriteString(v.Type().Name() + "{")
		sep := ""
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				b.WriteString(sep + v.Type().Field(i).Name + ":")
				dump(b, f)
				sep = ", "
			}
		}
		b.WriteByte('}')
	case reflect.Slice:
		if text, ok := v.Interface().(json.RawMessage); ok {
			fmt.Fprintf(b, "%s", text)
			return
		}
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteString(", ")
			}
			dump(b, v.Index(i))
		}
		b.WriteByte(']')
	default:
		fmt.Fprintf(b, "%#v", v.Interface())
	}
}
