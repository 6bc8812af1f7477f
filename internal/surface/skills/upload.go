package skills

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// upload is a package as a client sent it.
type upload struct {
	pkg    *skill.Package
	report *skill.Report
	// name is the name for people, and nameField the field that it came in.
	name, nameField string
	shared          []string
	makeDefault     bool

	files  []skill.File
	fields map[string]string
}

const (
	// partOverhead is what a form may have beside the bytes of one file: headers, boundary.
	partOverhead = 2 << 10
	maxField     = 64 << 10
	maxTitle     = 255
)

// receive reads an upload in whatever form it comes: a form with the files as parts or one zip, JSON, or a zip as the body itself.
func (h *Handler) receive(d dialect, w http.ResponseWriter, r *http.Request) (*upload, error) {
	select {
	case h.uploads <- struct{}{}:
		defer func() { <-h.uploads }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	limits := d.limits()
	up := &upload{fields: map[string]string{}}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var err error
	switch kind {
	case "multipart/form-data":
		err = up.form(w, r, limits)
	case "application/zip", "application/x-zip-compressed":
		err = up.body(w, r, limits)
	case "application/json":
		err = up.json(w, r, limits)
	default:
		err = turn.Invalid("files", "send the skill as multipart/form-data (files[] with their paths, or one zip), application/zip, or application/json; got %q", cut(kind))
	}
	if err == nil {
		err = up.settle(limits)
	}
	if err != nil {
		return nil, err
	}
	return up, nil
}

func (up *upload) form(w http.ResponseWriter, r *http.Request, limits skill.Limits) error {
	most := max(limits.TotalBytes, limits.ZipBytes, skill.Lenient.TotalBytes) + int64(limits.Files)*partOverhead
	r.Body = http.MaxBytesReader(w, r.Body, most)
	parts, err := r.MultipartReader()
	if err != nil {
		return &turn.Error{Kind: turn.KindInvalid, Message: "the body must be a multipart/form-data form", Cause: err}
	}
	budget := newBudget(limits)
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return formError(err)
		}
		switch name := part.FormName(); name {
		case "files[]", "files", "file":
			err = up.part(part, budget)
		case "display_name", "display_title", "default", "shared_with", "shared_with[]", "name", "description", "instructions":
			err = up.field(part, name)
		default:
			err = oai.UnknownParameter(name)
		}
		if err != nil {
			return err
		}
	}
}

// budget counts what an upload may still have.
type budget struct {
	limits skill.Limits
	bytes  int64
	files  int
}

func newBudget(l skill.Limits) *budget {
	if l.TotalBytes == 0 {
		l.TotalBytes = skill.Lenient.TotalBytes
	}
	return &budget{limits: l, bytes: max(l.TotalBytes, l.ZipBytes), files: l.Files}
}

func (b *budget) read(name string, r io.Reader) ([]byte, error) {
	if b.files--; b.files < 0 {
		return nil, turn.Errorf(turn.KindTooLarge, "the skill has more than %d files", b.limits.Files)
	}
	data, err := io.ReadAll(io.LimitReader(r, b.bytes+1))
	if err != nil {
		return nil, formError(err)
	}
	if b.bytes -= int64(len(data)); b.bytes < 0 {
		return nil, turn.Errorf(turn.KindTooLarge, "with %q the skill has more bytes than the %d MiB that are taken", cut(name), max(b.limits.TotalBytes, b.limits.ZipBytes)>>20)
	}
	return data, nil
}

func (up *upload) part(part *multipart.Part, b *budget) error {
	// Part.FileName drops the folders, so the header is read here.
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name := params["filename"]
	if err != nil || name == "" {
		return turn.Invalid("files", "a file has no filename in its Content-Disposition: send its path, such as my-skill/SKILL.md")
	}
	data, err := b.read(name, part)
	if err != nil {
		return err
	}
	up.files = append(up.files, skill.File{Path: name, Data: data, Exec: skill.Runnable(data)})
	return nil
}

func (up *upload) field(part *multipart.Part, name string) error {
	data, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err != nil {
		return formError(err)
	}
	if len(data) > maxField || !utf8.Valid(data) {
		return turn.Invalid(name, "%s must be text of at most %d bytes", name, maxField)
	}
	if name == "shared_with" || name == "shared_with[]" {
		for p := range strings.SplitSeq(string(data), ",") {
			if p = strings.TrimSpace(p); p != "" {
				up.shared = append(up.shared, p)
			}
		}
		return nil
	}
	up.fields[name] = string(data)
	return nil
}

func formError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return turn.Errorf(turn.KindTooLarge, "the request is larger than %d bytes", tooLarge.Limit)
	}
	return &turn.Error{Kind: turn.KindInvalid, Message: "the upload ended early or is malformed; send it again", Cause: err}
}

// body is a zip without a form around it; fields are in the query then.
func (up *upload) body(w http.ResponseWriter, r *http.Request, limits skill.Limits) error {
	b := newBudget(limits)
	data, err := b.read("the archive", http.MaxBytesReader(w, r.Body, b.bytes+1))
	if err != nil {
		return err
	}
	up.files = []skill.File{{Path: "skill.zip", Data: data}}
	for _, name := range []string{"display_name", "display_title", "default"} {
		if v := r.URL.Query().Get(name); v != "" {
			up.fields[name] = v
		}
	}
	up.shared = r.URL.Query()["shared_with"]
	return nil
}

// jsonFile is a file of a JSON upload: its text, or its bytes in base64.
type jsonFile struct {
	Path       string  `json:"path"`
	Content    *string `json:"content"`
	Data       []byte  `json:"data"`
	Executable *bool   `json:"executable"`
}

// json is ours: no vendor has it. Either files or archive, or a skill of instructions only.
func (up *upload) json(w http.ResponseWriter, r *http.Request, limits skill.Limits) error {
	b := newBudget(limits)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, b.bytes*4/3+1<<20))
	if err != nil {
		return formError(err)
	}
	var in struct {
		DisplayName  *string    `json:"display_name"`
		DisplayTitle *string    `json:"display_title"`
		Name         *string    `json:"name"`
		Description  *string    `json:"description"`
		Instructions *string    `json:"instructions"`
		SharedWith   []string   `json:"shared_with"`
		Default      bool       `json:"default"`
		Archive      string     `json:"archive"`
		Files        []jsonFile `json:"files"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
			return oai.UnknownParameter(strings.Trim(name, `"`))
		}
		return &turn.Error{Kind: turn.KindInvalid, Message: "the body must be a JSON object with files ([{path, content or data}]), archive (a zip in base64), " +
			"or name, description and instructions", Cause: err}
	}
	for name, value := range map[string]*string{
		"display_name": in.DisplayName, "display_title": in.DisplayTitle, "name": in.Name, "description": in.Description, "instructions": in.Instructions,
	} {
		if value != nil {
			up.fields[name] = *value
		}
	}
	if in.Default {
		up.fields["default"] = "true"
	}
	up.shared = in.SharedWith
	if in.Archive != "" {
		data, err := b.read("the archive", base64.NewDecoder(base64.StdEncoding, strings.NewReader(in.Archive)))
		if err != nil {
			return turn.Invalid("archive", "archive must be a zip in base64 of at most %d MiB", max(b.limits.TotalBytes, b.limits.ZipBytes)>>20)
		}
		up.files = append(up.files, skill.File{Path: "skill.zip", Data: data})
	}
	for i, f := range in.Files {
		if err := up.jsonFile(b, oai.At("files", i), f); err != nil {
			return err
		}
	}
	return nil
}

func (up *upload) jsonFile(b *budget, at string, f jsonFile) error {
	data := f.Data
	switch {
	case f.Path == "":
		return oai.Missing(at + ".path")
	case f.Content != nil && f.Data != nil:
		return turn.Invalid(at, "%s: give content (text) or data (base64), not both", at)
	case f.Content != nil:
		data = []byte(*f.Content)
	}
	data, err := b.read(f.Path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	file := skill.File{Path: f.Path, Data: data, Exec: skill.Runnable(data)}
	if f.Executable != nil {
		file.Exec = *f.Executable
	}
	up.files = append(up.files, file)
	return nil
}

// settle judges what came.
func (up *upload) settle(limits skill.Limits) error {
	if err := up.settleFields(); err != nil {
		return err
	}
	switch {
	case len(up.files) == 0:
		return turn.Invalid("files", "No files provided. SKILL.md is required.")
	case len(up.files) == 1 && isZip(up.files[0]):
		data := up.files[0].Data
		var err error
		if up.pkg, up.report, err = skill.ReadZip(bytes.NewReader(data), int64(len(data)), limits); err != nil {
			return err
		}
	default:
		up.pkg, up.report = skill.Read(up.files, limits)
	}
	up.files = nil
	if up.pkg == nil {
		return refusal(up.report)
	}
	return nil
}

func (up *upload) settleFields() error {
	for _, name := range []string{"display_name", "display_title"} {
		if v, has := up.fields[name]; has {
			if up.nameField != "" {
				return turn.Invalid(name, "give display_name or display_title, not both")
			}
			if err := checkTitle(name, v); err != nil {
				return err
			}
			up.name, up.nameField = v, name
		}
	}
	switch up.fields["default"] {
	case "", "false", "0":
	case "true", "1":
		up.makeDefault = true
	default:
		return turn.Invalid("default", "default must be true or false, got %q", cut(up.fields["default"]))
	}
	_, instructed := up.fields["instructions"]
	for _, name := range []string{"name", "description", "instructions"} {
		if _, has := up.fields[name]; has && len(up.files) > 0 {
			return turn.Invalid(name, "%s comes from SKILL.md where there are files: leave it out", name)
		}
	}
	if len(up.files) == 0 && instructed {
		up.files = []skill.File{up.instructions()}
	}
	return nil
}

// instructions makes the SKILL.md of a skill that is sent as text only.
func (up *upload) instructions() skill.File {
	name := up.fields["name"]
	if name == "" {
		name = up.name
	}
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) } // JSON's strings are YAML's
	text := fmt.Sprintf("---\nname: %s\ndescription: %s\n---\n\n%s\n", quote(skill.Slug(name)), quote(up.fields["description"]), strings.TrimSpace(up.fields["instructions"]))
	return skill.File{Path: skill.Manifest, Data: []byte(text)}
}

func isZip(f skill.File) bool {
	return !strings.EqualFold(path.Base(f.Path), skill.Manifest) && (bytes.HasPrefix(f.Data, []byte("PK\x03\x04")) || bytes.HasPrefix(f.Data, []byte("PK\x05\x06")) ||
		slices.Contains([]string{".zip", ".skill"}, strings.ToLower(path.Ext(f.Path))))
}

// tooLarge are the findings that are answered as too large a request.
var tooLarge = []string{"too-large", "file-too-large", "zip-too-large", "too-many-files"}

// refusal is the error for a package that cannot be loaded: all that is wrong, each with the mend.
func refusal(report *skill.Report) error {
	const most = 20
	kind := turn.KindInvalid
	var lines []string
	found := report.Refusals()
	for _, f := range found[:min(len(found), most)] {
		lines = append(lines, f.String())
		if slices.Contains(tooLarge, f.Code) {
			kind = turn.KindTooLarge
		}
	}
	if more := len(found) - len(lines) + report.More; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return &turn.Error{Kind: kind, Param: "files", Code: "invalid_value", Message: strings.Join(lines, "\n")}
}

// title is the name for people that the skill gets. In the older dialect of Anthropic it is display_title, in the newer display_name; both are
// taken in both.
func (up *upload) title(d dialect) (string, error) {
	if up.name == "" && up.nameField != "" && d == anthropicGA {
		return "", turn.Invalid(up.nameField, "%s: must not be empty", up.nameField)
	}
	return up.name, nil
}

func checkTitle(field, s string) error {
	if n := utf8.RuneCountInString(s); n > maxTitle {
		return oai.TooLong(field, maxTitle, n)
	}
	if strings.ContainsFunc(s, unicode.IsControl) || !utf8.ValidString(s) {
		return turn.Invalid(field, "%s: must be a single line of text", field)
	}
	return nil
}
