package containers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/egress"
	"github.com/lathe-gateway/lathe/internal/egress/rule"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/fake"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/surface/containers"
	"github.com/lathe-gateway/lathe/internal/surface/files"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// site is both surfaces over HTTP, as the official SDK sees them. The API key is the project.
type site struct {
	t       *testing.T
	url     string
	manager *container.Manager
	store   store.Store
}

func newSite(t *testing.T) *site { return newSiteWith(t, nil) }

func newSiteWith(t *testing.T, way *egress.Proxy) *site {
	t.Helper()
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "lathe.db"))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	must(t, err)
	backend := fake.New(fake.Config{Dir: t.TempDir(), Plain: true})
	limits := sandbox.Defaults()
	limits.Disk = 64 << 20
	m, err := container.New(container.Config{
		Store: db, Blobs: blobs, Backend: backend, Dir: filepath.Join(dir, "containers"), Limits: limits, Reserve: -1, MaxFile: 4 << 20,
		Egress: way, Projects: map[string]container.ProjectLimits{"small": {Files: 1}},
	})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()); must(t, backend.Close()) })
	mux := http.NewServeMux()
	containers.New(m, nil).Register(mux)
	files.New(m, nil).Register(mux)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		mux.ServeHTTP(w, r.WithContext(auth.WithPrincipal(r.Context(), auth.Principal{Name: key, Project: key})))
	}))
	t.Cleanup(srv.Close)
	return &site{t: t, url: srv.URL, manager: m, store: db}
}

func (s *site) client(project string) openai.Client {
	return openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey(project), option.WithMaxRetries(0))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks status and the whole error body.
func wantError(t *testing.T, what string, err error, status int, message, param, code string) {
	t.Helper()
	e, ok := errors.AsType[*openai.Error](err)
	if !ok {
		t.Errorf("%s: got %v, want an API error", what, err)
		return
	}
	if e.StatusCode != status || !strings.Contains(e.Message, message) || e.Param != param || e.Code != code ||
		e.Type != "invalid_request_error" {
		t.Errorf("%s: got %d %q param %q code %q type %q", what, e.StatusCode, e.Message, e.Param, e.Code, e.Type)
	}
}

// named is a reader with the name that the SDK sends.
type named struct {
	io.Reader
	name string
}

func (n named) Filename() string { return n.name }

func upload(t *testing.T, c openai.Client, name, text string) *openai.FileObject {
	t.Helper()
	f, err := c.Files.New(t.Context(), openai.FileNewParams{File: named{strings.NewReader(text), name}, Purpose: openai.FilePurposeUserData})
	must(t, err)
	return f
}

func (s *site) run(id, code string) *tool.Outcome {
	s.t.Helper()
	ctx := auth.WithPrincipal(s.t.Context(), auth.Principal{Project: "p"})
	w, err := s.manager.Open(ctx, &turn.Hosted{Container: id})
	must(s.t, err)
	defer w.Close()
	out, err := w.Run(ctx, tool.Call{Tool: tool.Python, Code: code}, nil)
	must(s.t, err)
	return out
}

func TestContainersWithTheSDK(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	c := s.client("p")
	up := upload(t, c, "in put.csv", "a,b\n1,2\n")
	made, err := c.Containers.New(ctx, openai.ContainerNewParams{
		Name: "my box", FileIDs: []string{up.ID}, MemoryLimit: openai.ContainerNewParamsMemoryLimit1g,
		ExpiresAfter: openai.ContainerNewParamsExpiresAfter{Anchor: "last_active_at", Minutes: 20},
	})
	must(t, err)
	if made.Object != "container" || made.Name != "my box" || made.Status != "running" || made.MemoryLimit != "1g" || made.CreatedAt == 0 ||
		made.LastActiveAt == 0 || made.ExpiresAfter.Minutes != 20 || made.ExpiresAfter.Anchor != "last_active_at" ||
		made.NetworkPolicy.Type != "disabled" || len(made.ID) > 64 {
		t.Errorf("created %s", made.RawJSON())
	}
	got, err := c.Containers.Get(ctx, made.ID)
	must(t, err)
	if got.ID != made.ID || got.LastActiveAt < made.LastActiveAt {
		t.Errorf("got %s", got.RawJSON())
	}

	out := s.run(made.ID, "rows = open('in put.csv').read()\nopen('out é.txt', 'w').write(rows.upper())")
	if out.Status != "ok" || len(out.Files) != 1 {
		t.Fatalf("run: %+v", out)
	}
	f, err := c.Containers.Files.Get(ctx, made.ID, out.Files[0].ID)
	must(t, err)
	if f.Path != "/mnt/data/out é.txt" || f.Bytes != 8 || f.Source != "assistant" || f.ContainerID != made.ID ||
		string(f.Object) != "container.file" {
		t.Errorf("file %s", f.RawJSON())
	}
	res, err := c.Containers.Files.Content.Get(ctx, made.ID, f.ID)
	must(t, err)
	data, err := io.ReadAll(res.Body)
	must(t, err)
	must(t, res.Body.Close())
	if string(data) != "A,B\n1,2\n" || res.ContentLength != 8 {
		t.Errorf("content %q, length %d", data, res.ContentLength)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff",
		"Content-Disposition": `attachment; filename="out _.txt"; filename*=UTF-8''out%20%C3%A9.txt`,
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}

	list, err := c.Containers.Files.List(ctx, made.ID, openai.ContainerFileListParams{})
	must(t, err)
	if len(list.Data) != 2 || list.HasMore || list.Data[0].ID != f.ID || list.Data[1].Source != "user" ||
		list.Data[1].Path != "/mnt/data/in put.csv" {
		t.Errorf("files %s", list.RawJSON())
	}
	must(t, c.Containers.Files.Delete(ctx, made.ID, f.ID))
	_, err = c.Containers.Files.Get(ctx, made.ID, f.ID)
	wantError(t, "a deleted file", err, 404, "File "+f.ID+" not found on container "+made.ID, "", "")
	if out := s.run(made.ID, "import os\nprint(os.listdir('.'))"); out.Outputs[0].Text != "['in put.csv']\n" {
		t.Errorf("the volume has %s", out.Outputs[0].Text)
	}

	must(t, c.Containers.Delete(ctx, made.ID))
	_, err = c.Containers.Get(ctx, made.ID)
	wantError(t, "a deleted container", err, 404, "Container with id '"+made.ID+"' not found.", "", "")
	if _, err := c.Files.Get(ctx, up.ID); err != nil {
		t.Errorf("the upload went with the container: %v", err)
	}
}

func TestFilesIntoAContainer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	c := s.client("p")
	box, err := c.Containers.New(ctx, openai.ContainerNewParams{Name: "box"})
	must(t, err)
	add := func(name, text string) *openai.ContainerFileNewResponse {
		t.Helper()
		f, err := c.Containers.Files.New(ctx, box.ID, openai.ContainerFileNewParams{File: named{strings.NewReader(text), name}})
		must(t, err)
		return f
	}
	a := add("../../a.csv", "one")
	if a.Path != "/mnt/data/a.csv" || a.Source != "user" || a.Bytes != 3 {
		t.Errorf("uploaded %s", a.RawJSON())
	}
	if same := add("a.csv", "one"); same.ID != a.ID {
		t.Errorf("the same bytes again: %s", same.RawJSON())
	}
	if other := add("a.csv", "two"); other.Path != "/mnt/data/a (2).csv" {
		t.Errorf("other bytes: %s", other.RawJSON())
	}
	if empty := add("empty", ""); !strings.Contains(empty.RawJSON(), `"bytes":0`) {
		t.Errorf("empty file: %s", empty.RawJSON())
	}

	up := upload(t, c, "a.csv", "three")
	byID, err := c.Containers.Files.New(ctx, box.ID, openai.ContainerFileNewParams{FileID: openai.String(up.ID)})
	must(t, err)
	if byID.Path != "/mnt/data/a (3).csv" {
		t.Errorf("by id: %s", byID.RawJSON())
	}
	code, body := s.post("p", "/v1/containers/"+box.ID+"/files", "application/json", fmt.Sprintf(`{"file_id":%q}`, up.ID))
	if code != 200 || !strings.Contains(body, byID.ID) {
		t.Errorf("by id in JSON, a second time: %d %s", code, body)
	}
	out := s.run(box.ID, "print([open(n).read() for n in ('a.csv', 'a (2).csv', 'a (3).csv')])\nopen('a.csv', 'a').write('!')")
	if out.Outputs[0].Text != "['one', 'two', 'three']\n" || len(out.Files) != 1 {
		t.Errorf("in the container: %+v", out)
	}

	for _, tt := range []struct{ what, kind, body, message, param, code string }{
		{"unknown field", "application/json", `{"file_ids":["x"]}`, "unknown parameter", "file_ids", "unknown_parameter"},
		{"nothing", "application/json", `{}`, "missing", "file_id", "missing_required_parameter"},
		{"no JSON", "application/json", `file`, "JSON object", "", ""},
		{"no form", "multipart/form-data", `x`, "form", "", ""},
		{
			"form cut off", "multipart/form-data; boundary=b",
			"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\nhalf", "send it again", "file", "",
		},
	} {
		code, body := s.post("p", "/v1/containers/"+box.ID+"/files", tt.kind, tt.body)
		if code != 400 || !strings.Contains(body, tt.message) || !strings.Contains(body, fmt.Sprintf(`"param":%s`, orNull(tt.param))) ||
			!strings.Contains(body, fmt.Sprintf(`"code":%s`, orNull(tt.code))) {
			t.Errorf("%s: %d %s", tt.what, code, body)
		}
	}
	_, err = c.Containers.Files.New(ctx, box.ID, openai.ContainerFileNewParams{File: named{bytes.NewReader(make([]byte, 5<<20)), "big"}})
	wantError(t, "too large", err, 413, "larger than 4 MiB", "file", "")
	_, err = c.Containers.Files.New(ctx, box.ID, openai.ContainerFileNewParams{FileID: openai.String("file_none")})
	wantError(t, "unknown upload", err, 404, "No such File object: file_none", "", "")
	_, err = c.Containers.Files.New(ctx, "cntr_none", openai.ContainerFileNewParams{File: named{strings.NewReader("x"), "x"}})
	wantError(t, "unknown container", err, 404, "not found", "", "")
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return fmt.Sprintf("%q", s)
}

func (s *site) post(project, path, contentType, body string) (int, string) {
	s.t.Helper()
	return s.do(http.MethodPost, project, path, body, http.Header{"Content-Type": {contentType}})
}

func (s *site) do(method, project, path, body string, h http.Header) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	must(s.t, err)
	for k, v := range h {
		req.Header[k] = v
	}
	req.Header.Set("Authorization", "Bearer "+project)
	res, err := http.DefaultClient.Do(req)
	must(s.t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	must(s.t, err)
	return res.StatusCode, string(data)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, tt := range []struct{ body, message, param, code string }{
		{`{"name":"x","files":["file_1"]}`, "unknown parameter: 'files'", "files", "unknown_parameter"},
		{`{}`, "name", "name", "missing_required_parameter"},
		{`{"name":""}`, "name", "name", "missing_required_parameter"},
		{`{"name":7}`, "a string", "name", "invalid_type"},
		{`{"name":"` + strings.Repeat("x", 257) + `"}`, "256", "name", "string_above_max_length"},
		{`{"name":"x","memory_limit":"2g"}`, "1g, 4g", "memory_limit", "invalid_value"},
		{`{"name":"x","memory_limit":"64g"}`, "which is 1 GiB", "memory_limit", "invalid_value"},
		{`{"name":"x","expires_after":{"minutes":5}}`, "anchor", "expires_after.anchor", "missing_required_parameter"},
		{`{"name":"x","expires_after":{"anchor":"last_active_at"}}`, "minutes", "expires_after.minutes", "missing_required_parameter"},
		{`{"name":"x","expires_after":{"anchor":"created_at","minutes":5}}`, "last_active_at", "expires_after.anchor", "invalid_value"},
		{`{"name":"x","expires_after":{"anchor":"last_active_at","minutes":0}}`, "from 1", "expires_after.minutes", "invalid_value"},
		{`{"name":"x","expires_after":{"anchor":"last_active_at","minutes":50000}}`, "43200 minutes", "expires_after.minutes", "invalid_value"},
		{`{"name":"x","expires_after":{"anchor":"last_active_at","minutes":1,"hours":1}}`, "hours", "expires_after.hours", "unknown_parameter"},
		{`{"name":"x","network_policy":{"type":"allowlist","allowed_domains":["a.com"]}}`, "network", "network_policy", "unsupported_value"},
		{`{"name":"x","skills":[{"type":"skill_reference","skill_id":"s"}]}`, "keeps no skills", "skills[0]", "unsupported_value"},
		{`{"name":"x","skills":[{"type":"skill_reference"}]}`, "skill_id", "skills[0].skill_id", "missing_required_parameter"},
		{`{"name":"x","skills":[{"type":"inline","source":{"type":"base64","media_type":"application/zip","data":"!"}}]}`, "not base64", "skills[0].source.data", "invalid_value"},
		{`{"name":"x","skills":"s"}`, "array of objects", "skills", "invalid_value"},
		{`{"name":"x","file_ids":["file_none"]}`, "No such File object: file_none", "file_ids", ""},
	} {
		code, body := s.post("p", "/v1/containers", "application/json", tt.body)
		want := 400
		if tt.code == "" {
			want = 404
		}
		if code != want || !strings.Contains(body, tt.message) || !strings.Contains(body, fmt.Sprintf(`"param":%s`, orNull(tt.param))) ||
			!strings.Contains(body, fmt.Sprintf(`"code":%s`, orNull(tt.code))) {
			t.Errorf("%s\n%d %s", tt.body, code, body)
		}
	}
	code, body := s.post("p", "/v1/containers", "application/json",
		`{"name":"x","memory_limit":null,"expires_after":null,"file_ids":null,"skills":[],"network_policy":{"type":"disabled"}}`)
	if code != 200 {
		t.Errorf("everything that may be empty: %d %s", code, body)
	}
	for path, param := range map[string]string{
		"/v1/containers?limit=101": "limit", "/v1/containers?order=up": "order", "/v1/containers?after=cntr_none": "after",
		"/v1/files?limit=10001": "limit", "/v1/files?after=file_none": "after",
	} {
		if code, body := s.do(http.MethodGet, "p", path, "", nil); code != 400 || !strings.Contains(body, `"param":"`+param+`"`) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := s.do(http.MethodGet, "", "/v1/containers", "", nil); code != 401 || !strings.Contains(body, "invalid_api_key") {
		t.Errorf("without a project: %d %s", code, body)
	}
}

func TestPagesWithTheSDK(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	c := s.client("p")
	var made []string
	for i := range 7 {
		name := "odd"
		if i%2 == 0 {
			name = "even"
		}
		box, err := c.Containers.New(ctx, openai.ContainerNewParams{Name: name})
		must(t, err)
		made = append(made, box.ID)
	}
	other := s.client("q")
	_, err := other.Containers.New(ctx, openai.ContainerNewParams{Name: "even"})
	must(t, err)
	ids := func(p openai.ContainerListParams) []string {
		t.Helper()
		var out []string
		pages := c.Containers.ListAutoPaging(ctx, p)
		for pages.Next() {
			out = append(out, pages.Current().ID)
		}
		must(t, pages.Err())
		return out
	}
	asc := ids(openai.ContainerListParams{Limit: openai.Int(2), Order: openai.ContainerListParamsOrderAsc})
	desc := ids(openai.ContainerListParams{Limit: openai.Int(3)})
	even := ids(openai.ContainerListParams{Limit: openai.Int(1), Name: openai.String("even"), Order: openai.ContainerListParamsOrderAsc})
	if fmt.Sprint(asc) != fmt.Sprint(made) || len(desc) != 7 || desc[0] != made[6] || desc[6] != made[0] {
		t.Errorf("made %v\nascending %v\ndescending %v", made, asc, desc)
	}
	if fmt.Sprint(even) != fmt.Sprint([]string{made[0], made[2], made[4], made[6]}) {
		t.Errorf("by name: %v", even)
	}
	if code, body := s.do(http.MethodGet, "r", "/v1/containers", "", nil); code != 200 ||
		body != `{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}` {
		t.Errorf("an empty list: %d %s", code, body)
	}
}

func TestOtherProject(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	mine, theirs := s.client("p"), s.client("q")
	box, err := mine.Containers.New(ctx, openai.ContainerNewParams{Name: "box"})
	must(t, err)
	f, err := mine.Containers.Files.New(ctx, box.ID, openai.ContainerFileNewParams{File: named{strings.NewReader("x"), "x"}})
	must(t, err)
	calls := map[string]func(id, file string) error{
		"get":    func(id, _ string) error { _, err := theirs.Containers.Get(ctx, id); return err },
		"delete": func(id, _ string) error { return theirs.Containers.Delete(ctx, id) },
		"list files": func(id, _ string) error {
			_, err := theirs.Containers.Files.List(ctx, id, openai.ContainerFileListParams{})
			return err
		},
		"get file":    func(id, f string) error { _, err := theirs.Containers.Files.Get(ctx, id, f); return err },
		"content":     func(id, f string) error { _, err := theirs.Containers.Files.Content.Get(ctx, id, f); return err },
		"delete file": func(id, f string) error { return theirs.Containers.Files.Delete(ctx, id, f) },
		"add file": func(id, _ string) error {
			_, err := theirs.Containers.Files.New(ctx, id, openai.ContainerFileNewParams{File: named{strings.NewReader("x"), "y"}})
			return err
		},
	}
	const none = "cntr_00000000000000000000000000000000"
	for what, call := range calls {
		foreign, unknown := call(box.ID, f.ID), call(none, f.ID)
		a, ok := errors.AsType[*openai.Error](foreign)
		b, ok2 := errors.AsType[*openai.Error](unknown)
		if !ok || !ok2 || a.StatusCode != 404 || strings.ReplaceAll(a.RawJSON(), box.ID, none) != b.RawJSON() {
			t.Errorf("%s: another project's id must answer as an unknown one:\n%v\n%v", what, foreign, unknown)
		}
	}
	_, err = mine.Containers.Files.Get(ctx, none, f.ID)
	wantError(t, "my file under an unknown container", err, 404, "Container with id", "", "")
}

func TestExpiredContainer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	c := s.client("p")
	box, err := c.Containers.New(ctx, openai.ContainerNewParams{Name: "box"})
	must(t, err)
	_, err = s.store.Containers().Update(ctx, "p", box.ID, func(row *store.Container) error {
		row.LastActive, row.ExpireAfter = time.Now().Add(-time.Hour), time.Minute
		return nil
	})
	must(t, err)
	got, err := c.Containers.Get(ctx, box.ID)
	must(t, err)
	if got.Status != "expired" {
		t.Errorf("status %s", got.Status)
	}
	_, err = c.Containers.Files.List(ctx, box.ID, openai.ContainerFileListParams{})
	wantError(t, "list files", err, 400, "Container is expired.", "", "")
	_, err = c.Containers.Files.New(ctx, box.ID, openai.ContainerFileNewParams{File: named{strings.NewReader("x"), "x"}})
	wantError(t, "add a file", err, 400, "Container is expired.", "", "")
	must(t, c.Containers.Delete(ctx, box.ID))
}

func TestFilesWithTheSDK(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := context.WithoutCancel(t.Context())
	c := s.client("p")
	up, err := c.Files.New(ctx, openai.FileNewParams{
		File: named{strings.NewReader("0123456789"), "dir/é.txt"}, Purpose: openai.FilePurposeUserData,
		ExpiresAfter: openai.FileNewParamsExpiresAfter{Seconds: 3600},
	})
	must(t, err)
	if up.Bytes != 10 || up.Filename != "é.txt" || string(up.Purpose) != "user_data" || up.ExpiresAt != up.CreatedAt+3600 ||
		string(up.Object) != "file" || !strings.HasPrefix(up.ID, "file_") {
		t.Errorf("uploaded %s", up.RawJSON())
	}
	forever, err := c.Files.New(ctx, openai.FileNewParams{File: named{strings.NewReader(""), "empty"}, Purpose: openai.FilePurposeVision})
	must(t, err)
	if !strings.Contains(forever.RawJSON(), `"expires_at":null`) || !strings.Contains(forever.RawJSON(), `"bytes":0`) {
		t.Errorf("uploaded %s", forever.RawJSON())
	}
	got, err := c.Files.Get(ctx, up.ID)
	must(t, err)
	if got.RawJSON() != up.RawJSON() {
		t.Errorf("got %s", got.RawJSON())
	}
	res, err := c.Files.Content(ctx, up.ID)
	must(t, err)
	data, err := io.ReadAll(res.Body)
	must(t, err)
	must(t, res.Body.Close())
	if string(data) != "0123456789" {
		t.Errorf("content %q", data)
	}
	code, part := s.do(http.MethodGet, "p", "/v1/files/"+up.ID+"/content", "", http.Header{"Range": {"bytes=3-5"}})
	if code != 206 || part != "345" {
		t.Errorf("range: %d %q", code, part)
	}
	code, part = s.do(http.MethodGet, "p", "/v1/files/"+up.ID+"/content", "", http.Header{"If-None-Match": {res.Header.Get("ETag")}})
	if code != 304 || part != "" {
		t.Errorf("known to the client: %d %q", code, part)
	}
	list, err := c.Files.List(ctx, openai.FileListParams{Purpose: openai.String("vision")})
	must(t, err)
	if len(list.Data) != 1 || list.Data[0].ID != forever.ID {
		t.Errorf("by purpose: %s", list.RawJSON())
	}
	deleted, err := c.Files.Delete(ctx, up.ID)
	must(t, err)
	if !deleted.Deleted || deleted.ID != up.ID || string(deleted.Object) != "file" {
		t.Errorf("deleted %s", deleted.RawJSON())
	}
	_, err = c.Files.Get(ctx, up.ID)
	wantError(t, "a deleted file", err, 404, "No such File object: "+up.ID, "", "")
	_, err = c.Files.New(ctx, openai.FileNewParams{File: named{strings.NewReader("x"), "x"}, Purpose: "homework"})
	wantError(t, "purpose", err, 400, "must be one of", "purpose", "invalid_value")
	_, err = c.Files.New(ctx, openai.FileNewParams{
		File: named{strings.NewReader("x"), "x"}, Purpose: "vision", ExpiresAfter: openai.FileNewParamsExpiresAfter{Seconds: 60},
	})
	wantError(t, "expiry", err, 400, "from 3600", "expires_after.seconds", "invalid_value")
	_, err = c.Files.New(ctx, openai.FileNewParams{File: named{bytes.NewReader(make([]byte, 6<<20)), "big"}, Purpose: "vision"})
	wantError(t, "too large", err, 413, "larger than 4 MiB", "file", "")
	theirs := s.client("q")
	_, err = theirs.Files.Content(ctx, forever.ID)
	wantError(t, "another project's", err, 404, "No such File object: "+forever.ID, "", "")
}

// What a container may reach, as the official client asks for it and reads it.
func TestNetworkPolicy(t *testing.T) {
	way, err := egress.New(egress.Config{Rules: rule.List{Allow: []rule.Domain{{Name: "pypi.org"}, {Name: "example.com", Wild: true}}}})
	must(t, err)
	t.Cleanup(func() { must(t, way.Close()) })
	s := newSiteWith(t, way)
	client := openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey("p"), option.WithMaxRetries(0))
	made, err := client.Containers.New(t.Context(), openai.ContainerNewParams{
		Name: "x", NetworkPolicy: openai.ContainerNewParamsNetworkPolicyUnion{OfAllowlist: &responses.ContainerNetworkPolicyAllowlistParam{
			AllowedDomains: []string{"pypi.org", "a.example.com"},
			DomainSecrets:  []responses.ContainerNetworkPolicyDomainSecretParam{{Domain: "pypi.org", Name: "TOKEN", Value: "sesame"}},
		}},
	})
	must(t, err)
	if got := strings.Join(made.NetworkPolicy.AllowedDomains, " "); made.NetworkPolicy.Type != "allowlist" || got != "a.example.com pypi.org" {
		t.Errorf("made with %+v", made.NetworkPolicy)
	}
	got, err := client.Containers.Get(t.Context(), made.ID)
	must(t, err)
	if got.NetworkPolicy.Type != "allowlist" || len(got.NetworkPolicy.AllowedDomains) != 2 || strings.Contains(got.RawJSON()+made.RawJSON(), "sesame") {
		t.Errorf("read as %s", got.RawJSON())
	}
	for body, want := range map[string]string{
		`{"name":"x"}`: `"network_policy":{"type":"allowlist","allowed_domains":["pypi.org","*.example.com"]}`,
		`{"name":"x","network_policy":{"type":"disabled"}}`:                                                                                                           `"network_policy":{"type":"disabled"}`,
		`{"name":"x","network_policy":{"type":"allowlist"}}`:                                                                                                          `"param":"network_policy.allowed_domains"`,
		`{"name":"x","network_policy":{"type":"some"}}`:                                                                                                               `"param":"network_policy.type"`,
		`{"name":"x","network_policy":{"type":"disabled","x":1}}`:                                                                                                     `"param":"network_policy.x"`,
		`{"name":"x","network_policy":{"type":"allowlist","allowed_domains":["pypi.org","evil.example"]}}`:                                                            `"param":"network_policy.allowed_domains[1]"`,
		`{"name":"x","network_policy":{"type":"allowlist","allowed_domains":["pypi.org"],"domain_secrets":[{"domain":"pypi.org","name":"N"}]}}`:                       `"param":"network_policy.domain_secrets[0].value"`,
		`{"name":"x","network_policy":{"type":"allowlist","allowed_domains":["pypi.org"],"domain_secrets":[{"domain":"a.example.com","name":"N","value":"sesame"}]}}`: `the domain \"a.example.com\" is not among the allowed_domains`,
	} {
		if code, got := s.post("p", "/v1/containers", "application/json", body); !strings.Contains(got, want) || strings.Contains(got, "sesame") {
			t.Errorf("%s: %d %s", body, code, got)
		}
	}
}
