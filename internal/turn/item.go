package turn

import (
	"encoding/json"
	"slices"
)

// Item is one thing of a conversation: Message, Reasoning, Call, Result, HostedCall or Block. Items are values and never changed in place.
type Item interface{ item() }

// Raw is how the client's or the upstream's protocol wrote something, where that says more than the canonical form: cache_control,
// citations of other kinds, fields that came after this release. Surfaces and providers of Protocol send JSON as it is, in place of a
// translation; all others translate the canonical fields, which are complete without it.
//
// Where both say the same thing the canonical form wins: ids, arguments, and a source by file id that has become data.
type Raw struct {
	Protocol string          `json:"protocol"`
	JSON     json.RawMessage `json:"json"`
}

// Of returns the JSON if it is of protocol, else nil.
func (r *Raw) Of(protocol string) json.RawMessage {
	if r == nil || r.Protocol != protocol {
		return nil
	}
	return r.JSON
}

// Role is who speaks a Message.
type Role string

// Developer is system text of newer OpenAI clients; a provider that does not know it sends it as system.
const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is text and other content of one speaker.
type Message struct {
	ID    string `json:"id,omitempty"`
	Role  Role   `json:"role"`
	Name  string `json:"name,omitempty"`
	Parts []Part `json:"-"`
}

// Reasoning is what a model thought. It goes back up whole, signatures included, in the order in which it came.
type Reasoning struct {
	ID      string   `json:"id,omitempty"`
	Summary []string `json:"summary,omitempty"`
	Text    string   `json:"text,omitempty"`
	// Encrypted is encrypted_content of Responses; Signature is the signature of an Anthropic thinking block.
	Encrypted string `json:"encrypted,omitempty"`
	Signature string `json:"signature,omitempty"`
	// Field names the delta field that an openai-chat upstream used (reasoning_content or reasoning), so that it is replayed there.
	Field string `json:"field,omitempty"`
	Raw   *Raw   `json:"raw,omitempty"`
}

// Call is the model's wish to have a tool called: a client's function or, in history, a hosted tool.
type Call struct {
	ID     string `json:"id,omitempty"`      // the item's own id (fc_), "" where the protocol has none
	CallID string `json:"call_id,omitempty"` // pairs it with its Result
	Name   string `json:"name"`
	// Arguments is what the model wrote; it need not be JSON.
	Arguments string `json:"arguments"`
	// Caller is the id of the hosted call whose program made this call (programmatic tool calling), "" where the model itself did.
	Caller string `json:"caller,omitempty"`
	Raw    *Raw   `json:"raw,omitempty"`
}

// Result answers a Call.
type Result struct {
	CallID string `json:"call_id"`
	Parts  []Part `json:"-"`
	Error  bool   `json:"error,omitempty"`
	Raw    *Raw   `json:"raw,omitempty"`
}

// HostedCall is a call that was run here, as clients see it and send it back. Providers never see one: the agent turns it into a Call
// and a Result.
type HostedCall struct {
	ID        string `json:"id"`   // ci_
	Tool      string `json:"tool"` // name of package tool
	Container string `json:"container"`
	// Code is what ran: source, a command, and for the edit tool the JSON object of its arguments.
	Code   string `json:"code"`
	Status Status `json:"status"`
	// Outputs is in the order in which the program made them. Nil in a replayed item means that the client did not get them: they are
	// filled in from the store.
	Outputs []Output `json:"outputs"`
	// Files are what the call made or changed.
	Files []File `json:"files,omitempty"`
	// ForModel is the text that the model got as the result, cut to its limit.
	ForModel string `json:"for_model,omitempty"`
	// Failed says that the program failed (exception, exit status, time, memory); what happened is in Outputs and ForModel.
	Failed bool `json:"failed,omitempty"`
	// ExitCode is the program's, of the shell for bash; for python 1 after an exception. It is never 0 where Failed is set by the program:
	// 124 for one whose time was up, 137 for one that was killed, 130 for one that was interrupted.
	ExitCode int `json:"exit_code,omitempty"`
	// Failure is how the program was stopped where Outputs cannot say so: its time was up, it was killed or interrupted. "" otherwise.
	Failure string `json:"failure,omitempty"`
	// ErrorCode is set where the call itself failed, not its program: one of the Error constants below.
	ErrorCode string `json:"error_code,omitempty"`
	// Edit is the result of the edit tool, nil for others and where ErrorCode is set.
	Edit *Edit `json:"edit,omitempty"`
	// Pending says, in a history, that the call has no result yet: its program waits for the results of calls with this Caller, or it was
	// deferred and is to run now. In HostedPaused it says that the former is so.
	Pending bool `json:"pending,omitempty"`
}

// The values of HostedCall.ErrorCode (error_code of code execution results, wire/anthropic.md 2.3).
const (
	ErrorInvalidInput   = "invalid_tool_input"
	ErrorUnavailable    = "unavailable"
	ErrorTooMany        = "too_many_requests"
	ErrorTime           = "execution_time_exceeded"
	ErrorOutputTooLarge = "output_file_too_large"
	ErrorFileNotFound   = "file_not_found"
)

// Edit is what a call of the edit tool did.
type Edit struct {
	// Command is view, create, str_replace or insert.
	Command string `json:"command"`
	// FileType is text, image or pdf; Content the text that a view shows, without line numbers, and the base64 of an image or PDF. Lines are
	// counted from 1; NumLines are those shown, TotalLines those of the file. All for view only. A folder's view is a text of paths.
	FileType   string `json:"file_type,omitempty"`
	Content    string `json:"content,omitempty"`
	StartLine  int    `json:"start_line,omitempty"`
	NumLines   int    `json:"num_lines,omitempty"`
	TotalLines int    `json:"total_lines,omitempty"`
	// Updated says that create replaced a file.
	Updated bool `json:"updated,omitempty"`
	// Hunk is the unified difference, for str_replace and insert: three lines of context, each line with its " ", "-" or "+".
	OldStart int      `json:"old_start,omitempty"`
	OldLines int      `json:"old_lines,omitempty"`
	NewStart int      `json:"new_start,omitempty"`
	NewLines int      `json:"new_lines,omitempty"`
	Hunk     []string `json:"hunk,omitempty"`
}

// Status is the state of a hosted call as clients see it.
type Status string

// A program that raised has StatusCompleted: its failure is data. StatusFailed is for a call that could not be run,
// StatusIncomplete for one that was interrupted.
const (
	StatusInProgress Status = "in_progress"
	StatusCompleted  Status = "completed"
	StatusIncomplete Status = "incomplete"
	StatusFailed     Status = "failed"
)

// Output is one piece of what a hosted call put out: logs (Text) or an image (Data of type MIME, stored as FileID).
type Output struct {
	Text string `json:"text,omitempty"`
	// Stream is what Text was written to: stdout, stderr, result (the value of the last expression), display, or "" where it is not known
	// or is a note of ours.
	Stream string `json:"stream,omitempty"`
	MIME   string `json:"mime,omitempty"`
	Data   []byte `json:"data,omitempty"`
	FileID string `json:"file_id,omitempty"`
}

// IsImage tells the two kinds apart.
func (o Output) IsImage() bool { return o.MIME != "" }

// File is a file that a hosted call made or changed.
type File struct {
	ID        string `json:"id"` // cfile_
	Container string `json:"container"`
	Path      string `json:"path"` // as the program sees it: /mnt/data/...
	Name      string `json:"name"` // base name
	Bytes     int64  `json:"bytes"`
	// Shown marks an image that the program displayed and did not save.
	Shown bool `json:"shown,omitempty"`
}

// Block is a piece of an assistant's turn that only Protocol knows, such as the search results of an upstream's own tool. A provider and
// a surface of that protocol send JSON as it is; others leave it out, and their documentation says so.
type Block struct {
	Protocol string          `json:"protocol"`
	Kind     string          `json:"kind"`
	JSON     json.RawMessage `json:"json"`
}

// InsertNote returns items with a system message behind the system text that they begin with: at the same place in every request of a
// conversation, for prompt caches. items stays as it is.
func InsertNote(items []Item, text string) []Item {
	n := 0
	for n < len(items) {
		m, ok := items[n].(Message)
		if !ok || m.Role != System && m.Role != Developer {
			break
		}
		n++
	}
	return slices.Insert(slices.Clip(items), n, Item(Message{Role: System, Parts: []Part{Text{Text: text}}}))
}

func (Message) item()    {}
func (Reasoning) item()  {}
func (Call) item()       {}
func (Result) item()     {}
func (HostedCall) item() {}
func (Block) item()      {}

// Part is a piece of a Message or Result: Text, Refusal, Image, Document or Foreign.
type Part interface{ part() }

// Text is plain text; Annotations belong to answers.
type Text struct {
	Text        string
	Annotations []Annotation `json:",omitempty"`
	Raw         *Raw         `json:",omitempty"`
}

// Refusal is the model's refusal to answer.
type Refusal struct{ Text string }

// Image is a picture by URL (https or data:) or by the id of an uploaded file. Detail is low, high, auto or original.
type Image struct {
	URL, FileID, Detail string `json:",omitempty"`
	Raw                 *Raw   `json:",omitempty"`
}

// Document is a file in the input: by uploaded file, by URL or inline. Inline says that the model itself is to read it, also where code
// could: it is not put into the container.
type Document struct {
	FileID, URL, Name, MIME string `json:",omitempty"`
	Data                    []byte `json:",omitempty"`
	Inline                  bool   `json:",omitempty"`
	Raw                     *Raw   `json:",omitempty"`
}

// Foreign is a part that only Protocol knows; a provider of that protocol sends JSON up as it is, others refuse it by Kind.
type Foreign struct {
	Protocol, Kind string
	JSON           json.RawMessage
}

func (Text) part()     {}
func (Refusal) part()  {}
func (Image) part()    {}
func (Document) part() {}
func (Foreign) part()  {}

// Annotation ties a span of a Text to a source. Start and End are offsets in Unicode code points, end exclusive.
type Annotation struct {
	// File is set for a container_file_citation.
	File       *File `json:",omitempty"`
	Start, End int
	// URL and Title are set for a url_citation.
	URL, Title string `json:",omitempty"`
	Raw        *Raw   `json:",omitempty"`
}
