package responses

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// input decodes instructions and input. Calls and outputs of functions must pair, since models' servers refuse them otherwise with
// errors that no client understands.
func (d *decoder) input() error {
	if s := deref(d.in.Instructions); s != "" {
		d.out.Items = append(d.out.Items, turn.Message{Role: turn.System, Parts: []turn.Part{turn.Text{Text: s}}})
	}
	if t := d.in.Input.Text; t != nil {
		d.out.Items = append(d.out.Items, turn.Message{Role: turn.User, Parts: []turn.Part{turn.Text{Text: *t}}})
		return nil
	}
	pairs := pairing{}
	for i, it := range d.in.Input.Items {
		path := oai.At("input", i)
		item, err := d.item(path, it)
		if err != nil {
			return err
		}
		if err := pairs.add(path, item); err != nil {
			return err
		}
		d.out.Items = append(d.out.Items, item)
	}
	return pairs.end()
}

func (d *decoder) item(path string, it oairesponses.Item) (turn.Item, error) {
	switch it := it.(type) {
	case *oairesponses.Message:
		return d.message(path, it)
	case *oairesponses.Reasoning:
		r := turn.Reasoning{ID: it.ID}
		unseal(it.EncryptedContent, &r)
		for _, s := range it.Summary {
			r.Summary = append(r.Summary, s.Text)
		}
		for _, c := range it.Content {
			r.Text += c.Text
		}
		return r, nil
	case *oairesponses.FunctionCall:
		if it.CallID == "" {
			return nil, oai.Missing(path + ".call_id")
		}
		if it.Name == "" {
			return nil, oai.Missing(path + ".name")
		}
		return turn.Call{ID: it.ID, CallID: it.CallID, Name: it.Name, Arguments: it.Arguments}, nil
	case *oairesponses.FunctionCallOutput:
		if it.CallID == "" {
			return nil, oai.Missing(path + ".call_id")
		}
		parts, err := d.content(path+".output", it.Output)
		return turn.Result{CallID: it.CallID, Parts: parts}, err
	case *oairesponses.CodeInterpreterCall:
		return d.hostedCall(path, it)
	case *oairesponses.ItemReference:
		return nil, turn.Unsupported(path+".id", "the item %q cannot be referred to: nothing is stored by this release; "+
			"send the item itself (clients that send references stop it with store: false)", it.ID)
	}
	kind := oairesponses.TypeOf(it)
	if kind == "" {
		return nil, oai.Missing(path + ".type")
	}
	return nil, turn.Unsupported(path+".type", "input items of type %q are not supported; leave them out", kind)
}

func (d *decoder) message(path string, m *oairesponses.Message) (turn.Item, error) {
	role := turn.Role(m.Role)
	if !slices.Contains([]turn.Role{turn.User, turn.Assistant, turn.System, turn.Developer}, role) {
		return nil, turn.Invalid(path+".role", "role must be user, assistant, system or developer, got %q", m.Role)
	}
	parts, err := d.content(path+".content", m.Content)
	return turn.Message{ID: m.ID, Role: role, Parts: parts}, err
}

func (d *decoder) content(path string, c oairesponses.Content) ([]turn.Part, error) {
	if c.Text != nil {
		return []turn.Part{turn.Text{Text: *c.Text}}, nil
	}
	if c.Parts == nil {
		return nil, oai.Missing(path)
	}
	var parts []turn.Part
	for i, p := range c.Parts {
		part, err := d.part(oai.At(path, i), p)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func (d *decoder) part(path string, p oairesponses.Part) (turn.Part, error) {
	switch p := p.(type) {
	case *oairesponses.Text:
		if p.Type == "input_text" {
			return turn.Text{Text: p.Text}, nil
		}
		return nil, turn.Invalid(path+".type", "%s does not belong here; use input_text or output_text", p.Type)
	case *oairesponses.OutputText:
		return turn.Text{Text: p.Text, Annotations: annotations(p.Annotations)}, nil
	case *oairesponses.Refusal:
		return turn.Refusal{Text: p.Refusal}, nil
	case *oairesponses.InputImage:
		return d.image(path, p)
	case *oairesponses.InputFile:
		return d.document(path, p)
	case *oairesponses.Raw:
		if p.Type == "" {
			return nil, oai.Missing(path + ".type")
		}
		return nil, turn.Unsupported(path+".type", "content of type %q is not supported; leave it out", p.Type)
	}
	return nil, turn.Invalid(path, "unknown content")
}

// annotations keeps those that say where text came from; the others mean nothing to a model.
func annotations(in []oairesponses.Annotation) []turn.Annotation {
	var out []turn.Annotation
	for _, a := range in {
		if a.StartIndex == nil || a.EndIndex == nil {
			continue
		}
		to := turn.Annotation{Start: *a.StartIndex, End: *a.EndIndex, URL: a.URL, Title: a.Title}
		if a.Type == "container_file_citation" {
			to.File = &turn.File{ID: a.FileID, Container: a.ContainerID, Name: a.Filename}
		}
		out = append(out, to)
	}
	return out
}

func (d *decoder) image(path string, p *oairesponses.InputImage) (turn.Part, error) {
	if err := oneOf(path+".detail", p.Detail, []string{"low", "high", "auto", "original"}); err != nil {
		return nil, err
	}
	if (p.ImageURL == "") == (p.FileID == "") {
		return nil, turn.Invalid(path, "an image needs either image_url or file_id")
	}
	if u := strings.ToLower(p.ImageURL[:min(len(p.ImageURL), 8)]); u != "" &&
		!strings.HasPrefix(u, "https://") && !strings.HasPrefix(u, "http://") && !strings.HasPrefix(u, "data:") {
		return nil, turn.Invalid(path+".image_url", "image_url must be an http, https or data URL")
	}
	return turn.Image{URL: p.ImageURL, FileID: p.FileID, Detail: p.Detail}, oai.AddFile(d.out.Hosted, path, p.FileID)
}

func (d *decoder) document(path string, p *oairesponses.InputFile) (turn.Part, error) {
	given := 0
	for _, s := range []string{p.FileID, p.FileURL, p.FileData} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return nil, turn.Invalid(path, "a file needs exactly one of file_id, file_url and file_data")
	}
	doc := turn.Document{FileID: p.FileID, URL: p.FileURL, Name: p.Filename}
	if p.FileData == "" {
		return doc, oai.AddFile(d.out.Hosted, path, p.FileID)
	}
	var ok bool
	if doc.MIME, doc.Data, ok = oai.DataURI(p.FileData); ok {
		return doc, nil
	}
	data, err := base64.StdEncoding.DecodeString(p.FileData)
	if err != nil {
		return nil, turn.Invalid(path+".file_data", "file_data must be base64 or a data URI in base64")
	}
	doc.Data = data
	return doc, nil
}

func (d *decoder) hostedCall(path string, c *oairesponses.CodeInterpreterCall) (turn.Item, error) {
	status, err := oai.ReplayedStatus(path+".status", c.Status)
	if err != nil {
		return nil, err
	}
	call := turn.HostedCall{ID: c.ID, Tool: oai.Python, Container: c.ContainerID, Code: deref(c.Code), Status: status}
	if c.Outputs != nil {
		call.Outputs = []turn.Output{}
	}
	for i, o := range c.Outputs {
		out, err := oai.ReplayedOutput(oai.At(path+".outputs", i), o.Type, deref(o.Logs), o.URL)
		if err != nil {
			return nil, err
		}
		call.Outputs = append(call.Outputs, out)
	}
	if d.out.Hosted != nil && c.ContainerID != "" {
		d.out.Hosted.Recent = c.ContainerID
	}
	return call, nil
}

// pairing checks that each function call is answered once, after it was made.
type pairing struct {
	order    []string
	answered map[string]bool
}

func (p *pairing) add(path string, it turn.Item) error {
	if p.answered == nil {
		p.answered = map[string]bool{}
	}
	switch it := it.(type) {
	case turn.Call:
		if _, ok := p.answered[it.CallID]; ok {
			return turn.Invalid(path+".call_id", "two function calls have the call_id %q", it.CallID)
		}
		p.order = append(p.order, it.CallID)
		p.answered[it.CallID] = false
	case turn.Result:
		done, ok := p.answered[it.CallID]
		if !ok {
			return turn.Invalid(path+".call_id",
				"no tool call found for function call output with call_id %q; send the function_call item before it", it.CallID)
		}
		if done {
			return turn.Invalid(path+".call_id", "there are two outputs for the function call %q", it.CallID)
		}
		p.answered[it.CallID] = true
	}
	return nil
}

func (p *pairing) end() error {
	for _, id := range p.order {
		if !p.answered[id] {
			return turn.Invalid("input", "no tool output found for function call %q; send its function_call_output", id)
		}
	}
	return nil
}
