// Package oaichat is the JSON of OpenAI's Chat Completions: the request, the answer, the chunk and the error, as structs. The shapes are
// those of openai-go v3 (chatcompletion.go) and, for what other servers send, of recorded streams.
//
// Two sets of types stand here. Request, Response and Chunk are exact: a request is read strictly, with the field named that is wrong,
// and all are written as the protocol says. Received is lenient: it reads whatever servers that call themselves compatible send.
//
// It is not a translator: it knows no turn, does no I/O and imports nothing of this project. The surface, the provider and the scripted
// upstream of the tests import it.
package oaichat

import (
	"bytes"
	"encoding/json"
)

// Object names of the protocol.
const (
	ObjectCompletion = "chat.completion"
	ObjectChunk      = "chat.completion.chunk"
)

// Done is the data of the frame that ends a stream.
const Done = "[DONE]"

// Marshal encodes v without escaping <, > and &, so that code stays readable and small on the wire.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

func isNull(raw []byte) bool {
	return len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null"
}
