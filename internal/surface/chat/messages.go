package chat

import (
	"encoding/base64"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

func (d *decoder) messages() error {
	if len(d.in.Messages) == 0 {
		return oai.Missing("messages")
	}
	for i, m := range d.in.Messages {
		path := oai.At("messages", i)
		var err error
		switch m.Role {
		case "system", "developer", "user":
			err = d.said(path, turn.Role(m.Role), m)
		case "assistant":
			err = d.answered(path, m)
		case "tool":
			err = d.result(path, m)
		case "function":
			err = turn.Unsupported(path+".role", "messages of role \"function\" are not supported here; use tools and role \"tool\"")
		case "":
			err = oai.Missing(path + ".role")
		default:
			err = turn.Invalid(path+".role", "the role must be system, developer, user, assistant or tool, got %q", m.Role)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) add(items ...turn.Item) { d.out.Items = append(d.out.Items, items...) }

func (d *decoder) said(path string, role turn.Role, m oaichat.Message) error {
	parts, err := d.parts(path, m.Content)
	if err != nil {
		return err
	}
	d.add(turn.Message{Role: role, Name: m.Name, Parts: parts})
	return nil
}

// answered is an earlier answer: what the model thought, the calls that were run here (placed before the text, since most answers speak of
// what came of them), its text, and its calls to the client.
func (d *decoder) answered(path string, m oaichat.Message) error {
	if len(m.FunctionCall) > 0 && string(m.FunctionCall) != "null" {
		return turn.Unsupported(path+".function_call", "function_call is not supported here; use tool_calls")
	}
	if len(m.Audio) > 0 && string(m.Audio) != "null" {
		return turn.Unsupported(path+".audio", "audio is not supported here; send the transcript as content")
	}
	if r, ok := reasoning(m); ok {
		d.add(r)
	}
	if err := d.hostedCalls(path, m); err != nil {
		return err
	}
	parts, err := d.parts(path, m.Content)
	if err != nil {
		return err
	}
	if m.Refusal != "" {
		parts = append(parts, turn.Refusal{Text: m.Refusal})
	}
	if !empty(parts) || len(m.ToolCalls) == 0 && len(m.CodeInterpreterCalls) == 0 {
		d.add(turn.Message{Role: turn.Assistant, Name: m.Name, Parts: parts})
	}
	for i, c := range m.ToolCalls {
		if c.Type != "" && c.Type != oaichat.ToolFunction {
			return turn.Unsupported(oai.At(path+".tool_calls", i)+".type", "calls of type %q are not supported here", c.Type)
		}
		if c.ID == "" || c.Function.Name == "" {
			return turn.Invalid(oai.At(path+".tool_calls", i), "a call needs an id and a function with a name")
		}
		d.add(turn.Call{CallID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	return nil
}

// empty says that parts are what clients send for null: nothing, or an empty text.
func empty(parts []turn.Part) bool {
	if len(parts) != 1 {
		return len(parts) == 0
	}
	t, ok := parts[0].(turn.Text)
	return ok && t.Text == ""
}

// reasoning is what the client kept of it, in the field in which it came to the client or, with other gateways, from the model.
func reasoning(m oaichat.Message) (turn.Reasoning, bool) {
	r := turn.Reasoning{}
	switch {
	case len(m.ReasoningDetails) > 0:
		r.Field = "reasoning_details"
		for _, e := range m.ReasoningDetails {
			r.Text += e.Text
			r.Signature += e.Signature
			r.Encrypted += e.Data
			if e.Summary != "" {
				r.Summary = append(r.Summary, e.Summary)
			}
		}
	case m.ReasoningContent != "":
		r.Text, r.Field = m.ReasoningContent, "reasoning_content"
	case m.Reasoning != "":
		r.Text, r.Field = m.Reasoning, "reasoning"
	default:
		return r, false
	}
	return r, true
}

func (d *decoder) hostedCalls(path string, m oaichat.Message) error {
	recent := ""
	if m.Container != nil {
		recent = m.Container.ID
	}
	for i, c := range m.CodeInterpreterCalls {
		if c.ID == "" || c.ContainerID == "" {
			continue // openai-node's stream helper keeps only the last delta of a field that it does not know
		}
		call, err := hostedCall(oai.At(path+".code_interpreter_calls", i), c)
		if err != nil {
			return err
		}
		recent = call.Container
		d.add(call)
	}
	if d.out.Hosted != nil && recent != "" {
		d.out.Hosted.Recent = recent
	}
	return nil
}

func hostedCall(path string, c oaichat.CodeInterpreterCall) (turn.HostedCall, error) {
	status, err := oai.ReplayedStatus(path+".status", c.Status)
	if err != nil {
		return turn.HostedCall{}, err
	}
	out := turn.HostedCall{ID: c.ID, Tool: oai.Python, Container: c.ContainerID, Code: c.Code, Status: status}
	if c.Outputs != nil {
		out.Outputs = []turn.Output{}
	}
	for i, o := range c.Outputs {
		piece, err := oai.ReplayedOutput(oai.At(path+".outputs", i), o.Type, o.Logs, o.URL)
		if err != nil {
			return turn.HostedCall{}, err
		}
		out.Outputs = append(out.Outputs, piece)
	}
	return out, nil
}

func (d *decoder) result(path string, m oaichat.Message) error {
	if m.ToolCallID == "" {
		return oai.Missing(path + ".tool_call_id")
	}
	parts, err := d.parts(path, m.Content)
	if err != nil {
		return err
	}
	d.add(turn.Result{CallID: m.ToolCallID, Parts: parts})
	return nil
}

func (d *decoder) parts(path string, c oaichat.Content) ([]turn.Part, error) {
	if c.Text != nil {
		return []turn.Part{turn.Text{Text: *c.Text}}, nil
	}
	var out []turn.Part
	for i, p := range c.Parts {
		part, err := d.part(oai.At(path+".content", i), p)
		if err != nil {
			return nil, err
		}
		out = append(out, part)
	}
	return out, nil
}

func (d *decoder) part(path string, p oaichat.Part) (turn.Part, error) {
	switch p.Type {
	case oaichat.PartText:
		return turn.Text{Text: p.Text}, nil
	case oaichat.PartRefusal:
		return turn.Refusal{Text: p.Refusal}, nil
	case oaichat.PartImage:
		if p.ImageURL == nil || p.ImageURL.URL == "" {
			return nil, oai.Missing(path + ".image_url.url")
		}
		return turn.Image{URL: p.ImageURL.URL, Detail: p.ImageURL.Detail}, nil
	case oaichat.PartFile:
		return d.file(path, p.File)
	}
	return turn.Foreign{Protocol: Protocol, Kind: p.Type, JSON: p.Raw}, nil
}

// file is an uploaded file or one in the request. An uploaded one also goes into the container, where there is one.
func (d *decoder) file(path string, f *oaichat.File) (turn.Part, error) {
	switch {
	case f == nil || f.FileID == "" && f.FileData == "":
		return nil, oai.Missing(path + ".file.file_data")
	case f.FileData == "":
		return turn.Document{FileID: f.FileID, Name: f.Filename}, oai.AddFile(d.out.Hosted, path, f.FileID)
	}
	mime, data, ok := oai.DataURI(f.FileData)
	if !ok {
		raw, err := base64.StdEncoding.DecodeString(f.FileData)
		if err != nil {
			return nil, turn.Invalid(path+".file.file_data", "file_data must be a data URI in base64, or base64")
		}
		data = raw
	}
	return turn.Document{Name: f.Filename, MIME: mime, Data: data}, nil
}
