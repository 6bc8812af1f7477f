package native

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// maxKept bounds what of an answer is held to be read: an event of a stream, or a whole body.
const maxKept = 64 << 20

// reader passes an answer on and reads it meanwhile: the events of a stream one by one, anything else at its end.
type reader struct {
	http.ResponseWriter
	stream, decided bool
	held            []byte
	lost            bool // too large to be read
	found           []string
}

// Unwrap is for http.ResponseController.
func (r *reader) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Write passes p on.
func (r *reader) Write(p []byte) (int, error) {
	if !r.decided {
		r.decided = true
		r.stream = strings.HasPrefix(r.Header().Get("Content-Type"), "text/event-stream")
	}
	r.take(p)
	return r.ResponseWriter.Write(p)
}

func (r *reader) take(p []byte) {
	for r.stream {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		r.hold(p[:i])
		r.line()
		p = p[i+1:]
	}
	r.hold(p)
}

func (r *reader) hold(p []byte) {
	if r.lost || len(r.held)+len(p) > maxKept {
		r.held, r.lost = nil, true
		return
	}
	r.held = append(r.held, p...)
}

func (r *reader) line() {
	if data, ok := bytes.CutPrefix(r.held, []byte("data:")); ok && !r.lost {
		r.add(made(data))
	}
	r.held, r.lost = r.held[:0], false
}

func (r *reader) add(ids []string) {
	for _, id := range ids {
		if !slices.Contains(r.found, id) {
			r.found = append(r.found, id)
		}
	}
}

// ids are those of what was made, each once.
func (r *reader) ids() []string {
	if r.stream {
		r.line()
	} else if !r.lost {
		r.add(made(r.held))
	}
	return r.found
}

// words by which an answer with an id of interest is known, without reading all of the others.
var words = [][]byte{[]byte(`"file_id"`), []byte(`"container`), []byte(`"response"`), []byte(`"previous_response_id"`)}

// made finds the ids of files, containers and responses in an event or a body that the provider wrote.
func made(data []byte) []string {
	if !slices.ContainsFunc(words, func(w []byte) bool { return bytes.Contains(data, w) }) {
		return nil
	}
	var v any
	if json.Unmarshal(data, &v) != nil {
		return nil
	}
	return collect(nil, v, "", echoed)
}

// named finds the ids that a client's request names.
func named(data []byte) []string {
	var v any
	if len(data) == 0 || json.Unmarshal(data, &v) != nil {
		return nil // the provider says what is wrong with it
	}
	return collect(nil, v, "", foreign)
}

// echoed are the fields of an answer that hold what the client or the model wrote; foreign those of a request that may hold anything.
var (
	foreign = map[string]bool{"input_schema": true, "parameters": true, "metadata": true, "schema": true, "arguments": true}
	echoed  = map[string]bool{
		"input_schema": true, "parameters": true, "metadata": true, "schema": true, "arguments": true,
		"input": true, "tools": true, "prompt": true, "instructions": true, "previous_response_id": true,
	}
)

// collect walks v, which stands under key, but not what stands under a key of skip.
func collect(ids []string, v any, key string, skip map[string]bool) []string {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			ids = collect(ids, e, key, skip)
		}
	case map[string]any:
		if id, ok := v["id"].(string); ok && (key == "container" || key == "response" || v["object"] == "response") {
			ids = append(ids, id)
		}
		for k, e := range v {
			if !skip[k] {
				ids = collect(ids, e, k, skip)
			}
		}
	case string:
		switch key {
		case "file_id", "file_ids", "container_id", "container", "previous_response_id":
			if v != "" && len(v) <= maxID {
				ids = append(ids, v)
			}
		}
	}
	return ids
}
