package oairesponses

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// Received is an event of a stream, or a whole response (Type ""), as a server sent it, read leniently: unknown fields are ignored, and a
// scalar of the wrong type is read as well as it can be. Clients' requests are read by DecodeRequest, which is strict.
type Received struct {
	Type string
	// ItemID and OutputIndex say which item the event is about; Output is nil where the server counts none.
	ItemID      string
	OutputIndex *int
	// Index is content_index or summary_index.
	Index int
	// Delta, Text and Name are what came, Text also under the names refusal and arguments.
	Delta, Text, Name string
	Item              *ReceivedItem
	Part              *ReceivedPart
	Annotation        *Annotation
	// Response is of the events about the whole response.
	Response *ReceivedResponse
	// Error is set for an event, or a body, that tells of a failure.
	Error *ReceivedError
}

// ReceivedResponse is a response object.
type ReceivedResponse struct {
	ID, Model, ServiceTier, Status string
	// Incomplete is incomplete_details.reason.
	Incomplete string
	Output     []ReceivedItem
	Usage      Usage
	Error      *ReceivedError
}

// ReceivedItem is an item of the output.
type ReceivedItem struct {
	Type, ID, CallID, Name, Arguments string
	// Content is of messages and reasoning, Summary of reasoning.
	Content, Summary []ReceivedPart
	Encrypted        string // encrypted_content
}

// ReceivedPart is output_text, refusal, reasoning_text or summary_text; Text is what it holds.
type ReceivedPart struct {
	Type, Text  string
	Annotations []Annotation
}

// ReceivedError is an error object, or a bare string in its place.
type ReceivedError struct{ Message, Type, Code, Param string }

type receivedJSON struct {
	Type         flexString `json:"type"`
	ItemID       flexString `json:"item_id"`
	OutputIndex  *flexInt   `json:"output_index"`
	ContentIndex flexInt    `json:"content_index"`
	SummaryIndex flexInt    `json:"summary_index"`

	Delta     flexString `json:"delta"`
	Text      flexString `json:"text"`
	Refusal   flexString `json:"refusal"`
	Arguments flexText   `json:"arguments"`
	Name      flexString `json:"name"`

	Item       *receivedItemJSON       `json:"item"`
	Part       *receivedPartJSON       `json:"part"`
	Annotation *receivedAnnotationJSON `json:"annotation"`
	Response   *receivedResponseJSON   `json:"response"`

	// What a whole response has at its top, and a flat error.
	receivedResponseJSON
	Object  flexString `json:"object"`
	Message flexString `json:"message"`
	Code    flexString `json:"code"`
	Param   flexString `json:"param"`
	Detail  flexString `json:"detail"` // FastAPI's name for the message
}

type receivedResponseJSON struct {
	ID          flexString         `json:"id"`
	Model       flexString         `json:"model"`
	ServiceTier flexString         `json:"service_tier"`
	Status      flexString         `json:"status"`
	Output      []receivedItemJSON `json:"output"`
	Usage       *struct {
		Input   flexInt `json:"input_tokens"`
		Output  flexInt `json:"output_tokens"`
		Details struct {
			Cached     flexInt `json:"cached_tokens"`
			CacheWrite flexInt `json:"cache_write_tokens"`
		} `json:"input_tokens_details"`
		OutputDetails struct {
			Reasoning flexInt `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	} `json:"usage"`
	Incomplete *struct {
		Reason flexString `json:"reason"`
	} `json:"incomplete_details"`
	Error json.RawMessage `json:"error"`
}

type receivedItemJSON struct {
	Type      flexString        `json:"type"`
	ID        flexString        `json:"id"`
	CallID    flexString        `json:"call_id"`
	Name      flexString        `json:"name"`
	Arguments flexText          `json:"arguments"`
	Content   receivedPartsJSON `json:"content"`
	Summary   receivedPartsJSON `json:"summary"`
	Encrypted flexString        `json:"encrypted_content"`
}

// receivedPartsJSON is a list of parts, or a string in its place.
type receivedPartsJSON []receivedPartJSON

func (p *receivedPartsJSON) UnmarshalJSON(data []byte) error {
	*p = nil
	switch data[0] {
	case '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*p = receivedPartsJSON{{Text: flexString(s)}}
	case '[':
		var list []receivedPartJSON
		err := lenient(data, &list)
		*p = list
		return err
	}
	return nil
}

type receivedPartJSON struct {
	Type        flexString               `json:"type"`
	Text        flexString               `json:"text"`
	Refusal     flexString               `json:"refusal"`
	Annotations []receivedAnnotationJSON `json:"annotations"`
}

type receivedAnnotationJSON struct {
	Type  flexString `json:"type"`
	URL   flexString `json:"url"`
	Title flexString `json:"title"`
	Start *flexInt   `json:"start_index"`
	End   *flexInt   `json:"end_index"`
}

// lenient decodes data; what is of a wrong type is skipped.
func lenient(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && te.Field != "" {
		return nil // json has skipped the field and read all others
	}
	return err
}

// ParseReceived reads an event or a whole response. It fails only where data is no JSON object.
func ParseReceived(data []byte) (*Received, error) {
	var in receivedJSON
	if err := lenient(data, &in); err != nil {
		return nil, err
	}
	out := &Received{
		Type: string(in.Type), ItemID: string(in.ItemID), Index: int(in.ContentIndex + in.SummaryIndex),
		Delta: string(in.Delta), Text: string(in.Text), Name: string(in.Name), Error: in.error(),
	}
	if in.OutputIndex != nil {
		n := int(*in.OutputIndex)
		out.OutputIndex = &n
	}
	out.Text += string(in.Refusal) + string(in.Arguments)
	if in.Item != nil {
		item := in.Item.item()
		out.Item = &item
	}
	if in.Part != nil {
		part := in.Part.part()
		out.Part = &part
	}
	if in.Annotation != nil {
		a := in.Annotation.annotation()
		out.Annotation = &a
	}
	switch {
	case in.Response != nil:
		out.Response = in.Response.response()
	case in.Object == "response" || in.Type == "" && in.Output != nil:
		out.Response = in.receivedResponseJSON.response()
		out.Error = nil // it is the response's
	}
	return out, nil
}

// error is an error that stands in a frame of its own: nested as the service sends it, flat as its SDKs document it, or as other servers
// put it.
func (in *receivedJSON) error() *ReceivedError {
	if e := parseError(in.receivedResponseJSON.Error); e != nil {
		return e
	}
	if in.Type != TypeError && in.Object != "error" && (in.Detail == "" || in.Type != "") {
		return nil
	}
	e := &ReceivedError{Message: string(in.Message), Code: string(in.Code), Param: string(in.Param)}
	if in.Object == "error" {
		e.Type = string(in.Type)
	}
	if e.Message == "" {
		e.Message = string(in.Detail)
	}
	return e
}

func parseError(raw json.RawMessage) *ReceivedError {
	if len(raw) == 0 || isNull(raw) {
		return nil
	}
	if raw[0] != '{' {
		var s flexString
		if s.UnmarshalJSON(raw) != nil || s == "" {
			s = flexString(raw)
		}
		return &ReceivedError{Message: string(s)}
	}
	var in struct {
		Message flexString `json:"message"`
		Type    flexString `json:"type"`
		Code    flexString `json:"code"`
		Param   flexString `json:"param"`
	}
	if json.Unmarshal(raw, &in) != nil {
		return &ReceivedError{Message: string(raw)}
	}
	return &ReceivedError{Message: string(in.Message), Type: string(in.Type), Code: string(in.Code), Param: string(in.Param)}
}

func (r *receivedResponseJSON) response() *ReceivedResponse {
	out := &ReceivedResponse{
		ID: string(r.ID), Model: string(r.Model), ServiceTier: string(r.ServiceTier), Status: string(r.Status), Error: parseError(r.Error),
	}
	if r.Incomplete != nil {
		out.Incomplete = string(r.Incomplete.Reason)
	}
	for _, item := range r.Output {
		out.Output = append(out.Output, item.item())
	}
	if u := r.Usage; u != nil {
		out.Usage = Usage{
			InputTokens: int(u.Input), OutputTokens: int(u.Output), TotalTokens: int(u.Input + u.Output),
			InputTokensDetails:  InputDetails{CachedTokens: int(u.Details.Cached), CacheWriteTokens: int(u.Details.CacheWrite)},
			OutputTokensDetails: OutputDetails{ReasoningTokens: int(u.OutputDetails.Reasoning)},
		}
	}
	return out
}

func (it receivedItemJSON) item() ReceivedItem {
	return ReceivedItem{
		Type: string(it.Type), ID: string(it.ID), CallID: string(it.CallID), Name: string(it.Name), Arguments: string(it.Arguments),
		Content: it.Content.parts(), Summary: it.Summary.parts(), Encrypted: string(it.Encrypted),
	}
}

func (p receivedPartsJSON) parts() []ReceivedPart {
	var out []ReceivedPart
	for _, part := range p {
		out = append(out, part.part())
	}
	return out
}

func (p receivedPartJSON) part() ReceivedPart {
	out := ReceivedPart{Type: string(p.Type), Text: string(p.Text) + string(p.Refusal)}
	for _, a := range p.Annotations {
		out.Annotations = append(out.Annotations, a.annotation())
	}
	return out
}

func (a receivedAnnotationJSON) annotation() Annotation {
	out := Annotation{Type: string(a.Type), URL: string(a.URL), Title: string(a.Title)}
	if a.Start != nil && a.End != nil {
		start, end := int(*a.Start), int(*a.End)
		out.StartIndex, out.EndIndex = &start, &end
	}
	return out
}

// flexString is a string, the text of a number or boolean, or "".
type flexString string

func (s *flexString) UnmarshalJSON(data []byte) error {
	*s = ""
	switch {
	case isNull(data) || data[0] == '{' || data[0] == '[':
	case data[0] == '"':
		return json.Unmarshal(data, (*string)(s))
	default:
		*s = flexString(data)
	}
	return nil
}

// flexInt is an integer, also written as a float or a string, or 0.
type flexInt int

func (i *flexInt) UnmarshalJSON(data []byte) error {
	*i = 0
	if f, err := strconv.ParseFloat(string(bytes.Trim(data, `"`)), 64); err == nil && f > -1e15 && f < 1e15 {
		*i = flexInt(f)
	}
	return nil
}

// flexText is a string, or the text of any other JSON value; null is "".
type flexText string

func (t *flexText) UnmarshalJSON(data []byte) error {
	switch {
	case isNull(data):
		*t = ""
	case data[0] == '"':
		return json.Unmarshal(data, (*string)(t))
	default:
		*t = flexText(data)
	}
	return nil
}
