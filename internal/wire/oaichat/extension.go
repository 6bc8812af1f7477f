package oaichat

// Our extension of Chat Completions: what a hosted code interpreter did, in the objects that Responses has for it (openai-go v3,
// ResponseCodeInterpreterToolCall). Clients that know nothing of it ignore the fields.

// CodeInterpreterCall is a call that was run here. Clients send it back as they got it.
type CodeInterpreterCall struct {
	ID          string `json:"id"`
	Type        string `json:"type"` // code_interpreter_call
	Status      string `json:"status"`
	Code        string `json:"code"`
	ContainerID string `json:"container_id"`
	// Outputs is null where the client did not keep them.
	Outputs []CodeInterpreterItem `json:"outputs"`
}

// TypeCodeInterpreterCall is the type of a CodeInterpreterCall.
const TypeCodeInterpreterCall = "code_interpreter_call"

// CodeInterpreterItem is one output: logs, or an image as a data URI.
type CodeInterpreterItem struct {
	Type string `json:"type"` // logs or image
	Logs string `json:"logs,omitempty"`
	URL  string `json:"url,omitempty"`
}

// CodeInterpreterCallDelta is a piece of a CodeInterpreterCall. Its first piece has id, type and container, then come pieces of the
// code, and the last has status and outputs. No field but Code comes twice, so that a client that only appends strings (openai-python's
// stream helper) gets the right object; a call without a status has not ended.
type CodeInterpreterCallDelta struct {
	Index       int                   `json:"index"`
	ID          string                `json:"id,omitempty"`
	Type        string                `json:"type,omitempty"`
	ContainerID string                `json:"container_id,omitempty"`
	Code        *string               `json:"code,omitempty"`
	Status      string                `json:"status,omitempty"`
	Outputs     []CodeInterpreterItem `json:"outputs,omitzero"`
}

// CodeInterpreterOutput is output while the program prints it. It comes only where the client asked for it.
type CodeInterpreterOutput struct {
	ID     string `json:"id"` // of the call
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// Container is the container of the turn.
type Container struct {
	ID string `json:"id"`
	// ExpiresAt is in Unix seconds, absent for never.
	ExpiresAt int64 `json:"expires_at,omitempty"`
}

// Annotation is an annotation of the content: the protocol's own url_citation, nested as the protocol has it, or a
// container_file_citation, flat as on Responses.
type Annotation struct {
	Type string `json:"type"`
	*FileCitation
	URLCitation *URLCitation `json:"url_citation,omitempty"`
}

// Annotation types.
const (
	TypeFileCitation = "container_file_citation"
	TypeURLCitation  = "url_citation"
)

// FileCitation says which file a span of the content links to. Offsets are in Unicode code points of the content, end exclusive.
type FileCitation struct {
	ContainerID string `json:"container_id"`
	FileID      string `json:"file_id"`
	Filename    string `json:"filename"`
	StartIndex  int    `json:"start_index"`
	EndIndex    int    `json:"end_index"`
}

// URLCitation says which web page a span of the content rests on.
type URLCitation struct {
	StartIndex int    `json:"start_index"`
	EndIndex   int    `json:"end_index"`
	URL        string `json:"url"`
	Title      string `json:"title"`
}
