package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/lathe-gateway/lathe/internal/sse"
)

type demoCmd struct {
	URL      string `required:"" placeholder:"URL" help:"The server, as lathe serve prints it."`
	Key      string `env:"LATHE_KEY" help:"API key, where the server has keys."`
	Model    string `default:"demo" help:"Model to ask (${default})."`
	Out      string `default:"." placeholder:"DIR" help:"Where the files that the program made are saved."`
	Question string `arg:"" optional:"" default:"Compute the first twelve Fibonacci numbers and plot them, please." help:"What to ask."`
}

// Run asks, shows the answer while it streams, and saves the files that it made.
func (c *demoCmd) Run(ctx context.Context, t *terminal) error {
	body, err := json.Marshal(map[string]any{
		"model": c.Model, "input": c.Question, "stream": true,
		"tools":   []any{map[string]any{"type": "code_interpreter", "container": map[string]string{"type": "auto"}}},
		"include": []string{"code_interpreter_call.outputs"},
	})
	if err != nil {
		return err
	}
	resp, err := c.request(ctx, http.MethodPost, "/v1/responses", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	show := &demoView{out: t.out}
	show.section("question")
	show.text(c.Question)
	for ev, err := range sse.Read(resp.Body, 0) {
		if err != nil {
			return fmt.Errorf("the stream broke: %w", err)
		}
		if err := show.event(ev.Data); err != nil {
			return err
		}
	}
	show.end()
	if !show.completed {
		return errors.New("the stream ended before the answer was complete")
	}
	return c.save(ctx, t, show.files)
}

func (c *demoCmd) request(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.URL, "/")+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Lathe-Live", "1")
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // the status is the error; the text is as much as came
		return nil, fmt.Errorf("%s %s answered %s: %s", method, path, resp.Status, bytes.TrimSpace(text))
	}
	return resp, nil
}

// citedFile is a container_file_citation.
type citedFile struct {
	Type      string `json:"type"`
	Container string `json:"container_id"`
	ID        string `json:"file_id"`
	Name      string `json:"filename"`
}

// save writes the files that the answer names. A name comes from the program: only its last part counts.
func (c *demoCmd) save(ctx context.Context, t *terminal, files []citedFile) error {
	if len(files) == 0 {
		return errors.New("the answer names no file")
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil { //nolint:gosec // results are for the user's own folder, with its usual mode
		return err
	}
	folder, err := os.OpenRoot(c.Out)
	if err != nil {
		return err
	}
	defer folder.Close()
	for _, f := range files {
		resp, err := c.request(ctx, http.MethodGet,
			"/v1/containers/"+url.PathEscape(f.Container)+"/files/"+url.PathEscape(f.ID)+"/content", nil)
		if err != nil {
			return err
		}
		n, err := saveIn(folder, filepath.Base(f.Name), resp.Body)
		resp.Body.Close()
		if err != nil {
			return fmt.Errorf("saving %s: %w", f.Name, err)
		}
		path, err := filepath.Abs(filepath.Join(c.Out, filepath.Base(f.Name)))
		if err != nil {
			return err
		}
		fmt.Fprintf(t.out, "saved %s (%d bytes)\n", path, n)
	}
	return nil
}

func saveIn(folder *os.Root, name string, from io.Reader) (int64, error) {
	f, err := folder.Create(name)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, from)
	return n, errors.Join(err, f.Close())
}

// demoView prints the events of a Responses stream as they come.
type demoView struct {
	out       io.Writer
	current   string // the open section
	midLine   bool
	files     []citedFile
	completed bool
}

// demoEvent is what the view needs of a streamed event (wire/openai.md section 2, and lathe.output.delta).
type demoEvent struct {
	Type       string    `json:"type"`
	Delta      string    `json:"delta"`
	Text       string    `json:"text"`
	Annotation citedFile `json:"annotation"`
	Message    string    `json:"message"`
	Response   struct {
		Error *struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"response"`
}

func (v *demoView) event(data []byte) error {
	var ev demoEvent
	if string(data) == "[DONE]" {
		return nil
	}
	if err := json.Unmarshal(data, &ev); err != nil {
		return fmt.Errorf("the stream holds something else than JSON: %w", err)
	}
	switch ev.Type {
	case "response.output_text.delta":
		v.section("answer")
		v.text(ev.Delta)
	case "response.code_interpreter_call_code.delta":
		v.section("code, as the model writes it")
		v.text(ev.Delta)
	case "lathe.output.delta":
		v.section("output, as the program prints it")
		v.text(ev.Text)
	case "response.output_text.annotation.added":
		if ev.Annotation.Type == "container_file_citation" {
			v.files = append(v.files, ev.Annotation)
		}
	case "response.completed":
		v.completed = true
	case "error":
		return fmt.Errorf("the server says: %s", ev.Message)
	case "response.failed":
		if ev.Response.Error != nil {
			return fmt.Errorf("the server says: %s", ev.Response.Error.Message)
		}
		return errors.New("the answer failed")
	}
	return nil
}

func (v *demoView) section(name string) {
	if v.current == name {
		return
	}
	v.end()
	fmt.Fprintf(v.out, "\n--- %s ---\n", name)
	v.current = name
}

func (v *demoView) text(s string) {
	if s == "" {
		return
	}
	fmt.Fprint(v.out, s)
	v.midLine = !strings.HasSuffix(s, "\n")
}

func (v *demoView) end() {
	if v.midLine {
		fmt.Fprintln(v.out)
	}
	v.midLine = false
}
