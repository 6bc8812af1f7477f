package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with the file called name in the archive, or writes it there.
func golden(t *testing.T, path, name string, got []byte) {
	t.Helper()
	ar, err := txtar.ParseFile(path)
	if err != nil && (!*update || !os.IsNotExist(err)) {
		t.Fatal(err)
	}
	if ar == nil {
		ar = &txtar.Archive{}
	}
	for i, f := range ar.Files {
		if f.Name != name {
			continue
		}
		if *update {
			ar.Files[i].Data = got
			break
		}
		if diff := cmp.Diff(string(f.Data), string(got)); diff != "" {
			t.Errorf("%s (-want +got; -update writes it):\n%s", path, diff)
		}
		return
	}
	if !*update {
		t.Fatalf("%s has no file %s; -update writes it", path, name)
	}
	if !bytes.Contains(txtar.Format(ar), []byte("-- "+name+" --")) {
		ar.Files = append(ar.Files, txtar.File{Name: name, Data: got})
	}
	if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dump is one event a line.
func dump(events []turn.Event, err error) []byte {
	var b strings.Builder
	for _, ev := range events {
		b.WriteString(strings.NewReplacer("turn.", "", "(nil)", "").Replace(fmt.Sprintf("%#v", ev)))
		b.WriteByte('\n')
	}
	if s, ok := errors.AsType[*upstream.Said](err); ok {
		fmt.Fprintf(&b, "error %s: %s\n", s.Type, s.Message)
	} else if err != nil {
		fmt.Fprintf(&b, "error: %s\n", turn.AsError(err).Message)
	}
	return []byte(b.String())
}

// decodeLines pushes one event a line; ids that are minted are toolu_m0, toolu_m1 ...
func decodeLines(data string) ([]turn.Event, error) {
	minted := 0
	d := &decoder{newID: func() string {
		minted++
		return fmt.Sprintf("toolu_m%d", minted-1)
	}}
	var events []turn.Event
	var v turn.Validator
	push := func(evs []turn.Event) error {
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
		evs, err := d.Push([]byte(line))
		if err != nil {
			return events, err
		}
		if err := push(evs); err != nil {
			return events, err
		}
	}
	evs, err := d.End()
	if err != nil {
		return events, err
	}
	return events, push(evs)
}

func TestDecodeGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/decode/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(bytes.TrimSpace(ar.Comment)) == 0 {
				t.Error("the file does not say what it pins")
			}
			golden(t, path, "events", dump(decodeLines(string(ar.Files[0].Data))))
		})
	}
}

func TestEncodeGolden(t *testing.T) {
	for name, tc := range encodeCases() {
		t.Run(name, func(t *testing.T) {
			out, err := tc.enc.request(tc.req)
			var got []byte
			if err != nil {
				got = fmt.Appendf(nil, "error: %v\n", err)
			} else {
				raw, err := wire.Marshal(out)
				if err != nil {
					t.Fatal(err)
				}
				var b bytes.Buffer
				if err := json.Indent(&b, raw, "", "  "); err != nil {
					t.Fatal(err)
				}
				got = append(b.Bytes(), '\n')
			}
			path := filepath.Join("testdata", "encode", name+".txtar")
			golden(t, path, "request.json", got)
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				ar.Comment = []byte(tc.pins + "\n")
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if string(ar.Comment) != tc.pins+"\n" {
				t.Errorf("%s says it pins %q, the case %q", path, ar.Comment, tc.pins)
			}
		})
	}
}

type encodeCase struct {
	pins string
	enc  encoder
	req  *turn.Request
}

func says(role turn.Role, text string) turn.Message {
	return turn.Message{Role: role, Parts: []turn.Part{turn.Text{Text: text}}}
}

func result(id string, parts ...turn.Part) turn.Result { return turn.Result{CallID: id, Parts: parts} }
