package skills_test

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/skill/catalog"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/surface/skills"
)

// server is the surface over a real catalog. The header X-Project says whose request it is.
type server struct {
	t   *testing.T
	url string
}

func start(t *testing.T, cfg catalog.Config) *server {
	t.Helper()
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "lathe.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	cfg.Store, cfg.Blobs, cfg.Dir = db.Skills(), blobs, filepath.Join(dir, "skills")
	c, err := catalog.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	mux := http.NewServeMux()
	skills.New(c, nil).Register(mux)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		project := r.Header.Get("X-Project")
		if project == "" {
			project = "p"
		}
		mux.ServeHTTP(w, r.WithContext(auth.WithPrincipal(r.Context(), auth.Principal{Project: project})))
	}))
	t.Cleanup(srv.Close)
	return &server{t, srv.URL}
}

// The headers that choose a dialect.
var (
	openai = map[string]string{}
	ga     = map[string]string{"Anthropic-Version": "2026-10-21"}
	beta   = map[string]string{"Anthropic-Version": "2023-06-01", "Anthropic-Beta": "files-api-2025-04-14, skills-2025-10-02"}
)

func with(headers map[string]string, more ...string) map[string]string {
	out := map[string]string{}
	for k, v := range headers {
		out[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

func (s *server) do(method, path string, headers map[string]string, body io.Reader) (int, string, http.Header) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

// ok is do for an answer that must be a 200.
func (s *server) ok(method, path string, headers map[string]string, body io.Reader) map[string]any {
	s.t.Helper()
	status, text, _ := s.do(method, path, headers, body)
	if status != 200 {
		s.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return object(s.t, text)
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// file is a part of a form: name "" makes it a field.
type part struct{ field, filename, text string }

func form(t *testing.T, parts ...part) (io.Reader, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		disposition := fmt.Sprintf(`form-data; name="%s"`, p.field)
		if p.filename != "" {
			disposition += fmt.Sprintf(`; filename="%s"`, p.filename)
		}
		h.Set("Content-Disposition", disposition)
		f, err := w.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, p.text)
	}
	w.Close()
	return &b, w.FormDataContentType()
}

func (s *server) send(path string, headers map[string]string, parts ...part) map[string]any {
	s.t.Helper()
	body, kind := form(s.t, parts...)
	return s.ok("POST", path, with(headers, "Content-Type", kind), body)
}

func (s *server) refused(path string, headers map[string]string, want int, parts ...part) string {
	s.t.Helper()
	body, kind := form(s.t, parts...)
	status, text, _ := s.do("POST", path, with(headers, "Content-Type", kind), body)
	if status != want {
		s.t.Errorf("POST %s: %d %s, want %d", path, status, text, want)
	}
	return text
}

func manifest(name, description string) string {
	return "---\nname: " + name + "\ndescription: " + description + "\n---\n\nDo it.\n"
}

func parts(name, description string) []part {
	return []part{
		{"files[]", name + "/SKILL.md", manifest(name, description)},
		{"files[]", name + "/scripts/run.py", "#!/usr/bin/env python3\nprint('" + description + "')\n"},
		{"files[]", name + "/data/größe 1.csv", "a,b\n"},
	}
}

// masked replaces what differs from run to run.
func masked(v any) string {
	text, _ := json.MarshalIndent(v, "", " ")
	for _, m := range []struct{ what, with string }{
		{`skill_[0-9a-f]{32}`, "SKILL"}, {`skver_[0-9a-f]{32}`, "VERSION"}, {`"\d{16}"`, `"EPOCH"`}, {`"\d{4}-\d\d-\d\dT[0-9:.]{15}Z"`, `"TIME"`},
		{`"created_at": \d{10}`, `"created_at": SECONDS`}, {`page_[A-Za-z0-9_-]+`, "PAGE"},
	} {
		text = regexp.MustCompile(m.what).ReplaceAll(text, []byte(m.with))
	}
	return string(text)
}

func want(t *testing.T, what string, got any, want string) {
	t.Helper()
	var w any
	if err := json.Unmarshal([]byte(strings.ReplaceAll(want, "SECONDS", `"SECONDS"`)), &w); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	wanted, _ := json.MarshalIndent(w, "", " ")
	if diff := cmp.Diff(string(wanted), strings.ReplaceAll(masked(got), "SECONDS", `"SECONDS"`)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestShapes has the objects of the three dialects over one and the same skill.
func TestShapes(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	created := s.send("/v1/skills", openai, parts("tables", "Cleans tables.")...)
	id := created["id"].(string)
	want(t, "openai create", created, `{"id":"SKILL","object":"skill","name":"tables","description":"Cleans tables.","default_version":"1","latest_version":"1","created_at":SECONDS}`)
	want(t, "ga get", s.ok("GET", "/v1/skills/"+id, ga, nil), `{"id":"SKILL","type":"skill","display_name":"tables","latest_version_id":"VERSION",
		"source":{"type":"custom"},"created_at":"TIME","updated_at":"TIME"}`)
	want(t, "beta get", s.ok("GET", "/v1/skills/"+id+"?beta=true", beta, nil), `{"id":"SKILL","type":"skill","display_title":null,"latest_version":"EPOCH",
		"source":"custom","created_at":"TIME","updated_at":"TIME"}`)

	want(t, "openai version", s.send("/v1/skills/"+id+"/versions", openai, parts("tables", "Second.")...),
		`{"id":"VERSION","object":"skill.version","skill_id":"SKILL","version":"2","name":"tables","description":"Second.","created_at":SECONDS}`)
	want(t, "ga version", s.send("/v1/skills/"+id+"/versions", ga, parts("tables", "Third.")...),
		`{"id":"VERSION","type":"skill_version","skill_id":"SKILL","name":"tables","description":"Third.","created_at":"TIME"}`)
	want(t, "beta version", s.send("/v1/skills/"+id+"/versions", beta, parts("tables", "Fourth.")...),
		`{"type":"skill_version","skill_id":"SKILL","id":"VERSION","version":"EPOCH","directory":"tables","name":"tables","description":"Fourth.","created_at":"TIME"}`)

	list := `{"object":"list","data":[{"id":"SKILL","object":"skill","name":"tables","description":"Cleans tables.","default_version":"1","latest_version":"4","created_at":SECONDS}],
		"first_id":"SKILL","last_id":"SKILL","has_more":false}`
	want(t, "openai list", s.ok("GET", "/v1/skills", openai, nil), list)
	want(t, "ga list", s.ok("GET", "/v1/skills", ga, nil), `{"data":[{"id":"SKILL","type":"skill","display_name":"tables","latest_version_id":"VERSION",
		"source":{"type":"custom"},"created_at":"TIME","updated_at":"TIME"}],"next_page":null}`)
	want(t, "beta list", s.ok("GET", "/v1/skills", beta, nil), `{"data":[{"id":"SKILL","type":"skill","display_title":null,"latest_version":"EPOCH",
		"source":"custom","created_at":"TIME","updated_at":"TIME"}],"has_more":false,"next_page":null}`)
	want(t, "beta versions, a page", s.ok("GET", "/v1/skills/"+id+"/versions?limit=1", beta, nil), `{"data":[{"type":"skill_version","skill_id":"SKILL","id":"VERSION","version":"EPOCH",
		"directory":"tables","name":"tables","description":"Fourth.","created_at":"TIME"}],"has_more":true,"next_page":"PAGE"}`)

	want(t, "openai default", s.ok("POST", "/v1/skills/"+id, openai, strings.NewReader(`{"default_version":"2"}`)),
		`{"id":"SKILL","object":"skill","name":"tables","description":"Second.","default_version":"2","latest_version":"4","created_at":SECONDS}`)
	want(t, "openai default by number", s.ok("POST", "/v1/skills/"+id, openai, strings.NewReader(`{"default_version":3}`))["default_version"], `"3"`)

	third := s.ok("GET", "/v1/skills/"+id+"/versions/3", openai, nil)["id"].(string)
	want(t, "ga version deleted", s.ok("DELETE", "/v1/skills/"+id+"/versions/"+third, ga, nil), `{"id":"VERSION","type":"skill_version_deleted"}`)
	epoch := s.ok("GET", "/v1/skills/"+id, beta, nil)["latest_version"].(string)
	want(t, "beta version deleted", s.ok("DELETE", "/v1/skills/"+id+"/versions/"+epoch, beta, nil), `{"id":"EPOCH","type":"skill_version_deleted"}`)
	want(t, "openai version deleted", s.ok("DELETE", "/v1/skills/"+id+"/versions/1", openai, nil),
		`{"id":"VERSION","object":"skill.version.deleted","deleted":true,"version":"1"}`)
	want(t, "openai deleted", s.ok("DELETE", "/v1/skills/"+id, openai, nil), `{"id":"SKILL","object":"skill.deleted","deleted":true}`)
	again := s.send("/v1/skills", ga, parts("tables", "x")...)["id"].(string)
	want(t, "ga deleted", s.ok("DELETE", "/v1/skills/"+again, ga, nil), `{"id":"SKILL","type":"skill_deleted"}`)
}

// TestDeletionRules: OpenAI keeps the default version, Anthropic's older dialect keeps a skill that has versions.
func TestDeletionRules(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	id := s.send("/v1/skills", openai, parts("tables", "one")...)["id"].(string)
	s.send("/v1/skills/"+id+"/versions", openai, append(parts("tables", "two"), part{"default", "", "true"})...)
	status, text, _ := s.do("DELETE", "/v1/skills/"+id+"/versions/2", openai, nil)
	if status != 400 || !strings.Contains(text, "default version cannot be deleted") {
		t.Errorf("the default: %d %s", status, text)
	}
	status, text, _ = s.do("DELETE", "/v1/skills/"+id, beta, nil)
	if status != 400 || !strings.Contains(text, "existing versions") || !strings.Contains(text, `"type":"error"`) {
		t.Errorf("with versions: %d %s", status, text)
	}
	s.ok("DELETE", "/v1/skills/"+id+"/versions/1", openai, nil)
	s.ok("DELETE", "/v1/skills/"+id+"/versions/2", openai, nil) // the last one takes the skill with it
	if status, _, _ := s.do("GET", "/v1/skills/"+id, openai, nil); status != 404 {
		t.Errorf("the skill stays: %d", status)
	}
	id = s.send("/v1/skills", beta, parts("tables", "one")...)["id"].(string)
	epoch := s.ok("GET", "/v1/skills/"+id, beta, nil)["latest_version"].(string)
	s.ok("DELETE", "/v1/skills/"+id+"/versions/"+epoch, beta, nil)
	if got := s.ok("GET", "/v1/skills/"+id, beta, nil); got["latest_version"] != nil {
		t.Errorf("without versions: %v", got)
	}
	s.ok("DELETE", "/v1/skills/"+id, beta, nil)
	for _, name := range []string{"latest", "default", "x"} {
		id := s.send("/v1/skills", ga, parts("tables", "one")...)["id"].(string)
		if status, _, _ := s.do("DELETE", "/v1/skills/"+id+"/versions/"+name, ga, nil); status != 400 {
			t.Errorf("deleting the version %s: %d", name, status)
		}
	}
}

// TestUploadForms: the same skill as files, as a zip in a form, as a zip alone, and in JSON is the same archive.
func TestUploadForms(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	content := func(id string) string {
		t.Helper()
		status, text, h := s.do("GET", "/v1/skills/"+id+"/content", openai, nil)
		if status != 200 || h.Get("Content-Type") != "application/zip" || !strings.Contains(h.Get("Content-Disposition"), "tables.zip") {
			t.Fatalf("content: %d %v", status, h)
		}
		return text
	}
	first := content(s.send("/v1/skills", openai, parts("tables", "Cleans.")...)["id"].(string))
	r, err := zip.NewReader(strings.NewReader(first), int64(len(first)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range r.File {
		names = append(names, f.Name+" "+f.Mode().String())
	}
	if diff := cmp.Diff([]string{"tables/SKILL.md -rw-r--r--", "tables/data/größe 1.csv -rw-r--r--", "tables/scripts/run.py -rwxr-xr-x"}, names); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
	zipJSON, _ := json.Marshal(map[string]any{"archive": base64.StdEncoding.EncodeToString([]byte(first))})
	var files []map[string]any
	for _, p := range parts("tables", "Cleans.") {
		files = append(files, map[string]any{"path": p.filename, "content": p.text})
	}
	files[2] = map[string]any{"path": files[2]["path"], "data": base64.StdEncoding.EncodeToString([]byte("a,b\n"))}
	filesJSON, _ := json.Marshal(map[string]any{"files": files, "display_name": "Tables", "shared_with": []string{"q"}})
	oldName := parts("tables", "Cleans.")
	for i := range oldName {
		oldName[i].field = "files" // OpenAI's documentation
	}
	body, kind := form(t, oldName...)
	plain, plainKind := form(t, part{"files[]", "tables.zip", first})
	for name, up := range map[string]struct {
		kind string
		body io.Reader
	}{
		"a zip in a form": {plainKind, plain}, "a zip": {"application/zip", strings.NewReader(first)},
		"a zip in JSON": {"application/json", bytes.NewReader(zipJSON)}, "files in JSON": {"application/json; charset=utf-8", bytes.NewReader(filesJSON)},
		"files without brackets": {kind, body},
	} {
		got := s.ok("POST", "/v1/skills", map[string]string{"Content-Type": up.kind}, up.body)
		if content(got["id"].(string)) != first {
			t.Errorf("%s: another archive", name)
		}
	}
	// A skill of instructions only, as LiteLLM's clients send it.
	got := s.send("/v1/skills", beta, part{"display_title", "", "Table: helper"}, part{"description", "", `Says "hi": now`}, part{"instructions", "", "Be kind."})
	v := s.ok("GET", "/v1/skills/"+got["id"].(string)+"/versions/latest", ga, nil)
	if v["name"] != "table-helper" || v["description"] != `Says "hi": now` {
		t.Errorf("instructions only: %v", v)
	}
}

func TestRefusedUploads(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	big := strings.Repeat("x", 26<<20)
	for _, test := range []struct {
		name    string
		headers map[string]string
		parts   []part
		status  int
		words   []string
	}{
		{"nothing", ga, nil, 400, []string{"No files provided"}},
		{"no manifest", ga, []part{{"files[]", "x/a.py", "1"}}, 400, []string{"SKILL.md"}},
		{"all faults at once", openai, []part{{"files[]", "x/SKILL.md", "no front matter"}, {"files[]", "x/../../etc/passwd", "x"}, {"files[]", `x\\a`, "1"}}, 400,
			[]string{"front matter", "etc/passwd", "backslash"}},
		{"twice", ga, append(parts("x", "d"), parts("x", "d")...), 400, []string{"twice"}},
		{"no filename", ga, []part{{"files[]", "", "x"}}, 400, []string{"filename"}},
		{"unknown field", openai, append(parts("x", "d"), part{"color", "", "red"}), 400, []string{"color"}},
		{"a description beside files", openai, append(parts("x", "d"), part{"description", "", "x"}), 400, []string{"description"}},
		{"two titles", ga, append(parts("x", "d"), part{"display_name", "", "a"}, part{"display_title", "", "b"}), 400, []string{"not both"}},
		{"a title of two lines", ga, append(parts("x", "d"), part{"display_name", "", "a\nb"}), 400, []string{"single line"}},
		{"a long title", ga, append(parts("x", "d"), part{"display_name", "", strings.Repeat("é", 256)}), 400, []string{"255"}},
		{"an empty title", ga, append(parts("x", "d"), part{"display_name", "", ""}), 400, []string{"empty"}},
		{"a broken zip", ga, []part{{"files[]", "x.zip", "PK\x03\x04"}}, 400, []string{"zip"}},
		{"a file of 26 MiB, OpenAI", openai, append(parts("x", "d"), part{"files[]", "x/big", big}), 413, []string{"big"}},
		{"31 MiB, Anthropic", ga, append(parts("x", "d"), part{"files[]", "x/a", big}, part{"files[]", "x/b", big[:5<<20]}), 413, []string{"30 MiB"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			text := s.refused("/v1/skills", test.headers, test.status, test.parts...)
			for _, w := range test.words {
				if !strings.Contains(text, w) {
					t.Errorf("%s does not say %q", text, w)
				}
			}
			if _, isAnthropic := test.headers["Anthropic-Version"]; isAnthropic != strings.Contains(text, `"type":"error"`) {
				t.Errorf("not in the form of the dialect: %s", text)
			}
		})
	}
	t.Run("501 files, OpenAI", func(t *testing.T) {
		t.Parallel()
		many := parts("x", "d")
		for i := range 499 {
			many = append(many, part{"files[]", fmt.Sprintf("x/f%d", i), ""})
		}
		s.refused("/v1/skills", openai, 413, many...)
		s.send("/v1/skills", ga, many...)
	})
	for kind, body := range map[string]string{
		"text/plain": "x", "application/json": "[]", "": "x", "multipart/form-data": "x", "application/json; x": `{"colour":1}`, "application/zip": "x",
	} {
		status, text, _ := s.do("POST", "/v1/skills", map[string]string{"Content-Type": kind}, strings.NewReader(body))
		if status != 400 {
			t.Errorf("%q: %d %s", kind, status, text)
		}
	}
	if got := s.ok("GET", "/v1/skills?limit=100", openai, nil)["data"].([]any); len(got) > 1 { // that of the 502 files may be there
		t.Errorf("a refused upload left %v", got)
	}
}

// TestWarnings: what other readers would refuse is loaded, and said.
func TestWarnings(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	got := s.send("/v1/skills", ga, part{"files[]", "Tables/skill.md", "\ufeff---\r\nname: Tables\r\ndescription: Use when: needed\r\n---\r\nx"})
	codes := ""
	for _, w := range got["warnings"].([]any) {
		w := w.(map[string]any)
		codes += fmt.Sprint(w["code"], ":", w["line"], " ")
	}
	if codes != "bom:1 crlf:1 name-characters:2 unquoted:3 manifest-case:<nil> " {
		t.Errorf("warnings %s in %v", codes, got["warnings"])
	}
	v := s.ok("GET", "/v1/skills/"+got["id"].(string)+"/versions/latest", ga, nil)
	if v["name"] != "tables" || v["description"] != "Use when: needed" || v["warnings"] != nil {
		t.Errorf("%v", v)
	}
}

func TestPaging(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	var ids []string
	for i := range 7 {
		ids = append([]string{s.send("/v1/skills", ga, parts("tables", fmt.Sprint("n", i))...)["id"].(string)}, ids...)
	}
	walk := func(headers map[string]string, deleting bool) []string {
		t.Helper()
		var got []string
		query := "?limit=2"
		for range 10 {
			list := s.ok("GET", "/v1/skills"+query, headers, nil)
			for _, e := range list["data"].([]any) {
				got = append(got, e.(map[string]any)["id"].(string))
				if deleting {
					s.ok("DELETE", "/v1/skills/"+got[len(got)-1], ga, nil)
				}
			}
			next, more := list["next_page"], list["has_more"]
			switch {
			case headers["Anthropic-Version"] == "" && more == true:
				query = "?limit=2&after=" + list["last_id"].(string)
			case headers["Anthropic-Version"] != "" && next != nil:
				query = "?limit=2&page=" + next.(string)
			default:
				return got
			}
			if headers["Anthropic-Beta"] != "" && more != true {
				t.Errorf("has_more %v with next_page %v", more, next)
			}
		}
		t.Fatal("no end")
		return nil
	}
	for name, headers := range map[string]map[string]string{"openai": openai, "ga": ga, "beta": beta} {
		if diff := cmp.Diff(ids, walk(headers, false)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	list := s.ok("GET", "/v1/skills?order=asc&limit=1", openai, nil)
	if list["first_id"] != ids[6] {
		t.Errorf("ascending begins with %v", list["first_id"])
	}
	if list := s.ok("GET", "/v1/skills?limit=0", openai, nil); len(list["data"].([]any)) != 0 || list["has_more"] != true {
		t.Errorf("limit 0: %v", list)
	}
	for _, bad := range []struct {
		headers map[string]string
		query   string
	}{
		{openai, "limit=101"}, {openai, "limit=-1"}, {openai, "order=up"}, {openai, "after=skill_none"}, {ga, "limit=1001"}, {ga, "limit=0"}, {beta, "limit=101"},
		{ga, "page=x"}, {ga, "page=page_!!"}, {ga, "page=page_eA"}, {ga, "source=x"},
	} {
		if status, text, _ := s.do("GET", "/v1/skills?"+bad.query, bad.headers, nil); status != 400 {
			t.Errorf("%s: %d %s", bad.query, status, text)
		}
	}
	if diff := cmp.Diff(ids, walk(ga, true)); diff != "" {
		t.Errorf("while they are deleted (-want +got):\n%s", diff)
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	s.send("/v1/skills", ga, parts("tables", "Cleans spreadsheets.")...)
	s.send("/v1/skills", ga, parts("charts", "Draws charts of spreadsheets.")...)
	s.send("/v1/skills", with(ga, "X-Project", "q"), parts("others", "Has spreadsheets of others.")...)
	names := func(query string) string {
		t.Helper()
		var out []string
		for _, e := range s.ok("GET", "/v1/skills?"+query, openai, nil)["data"].([]any) {
			out = append(out, e.(map[string]any)["name"].(string))
		}
		return strings.Join(out, " ")
	}
	for query, want := range map[string]string{"query=charts": "charts", "query=clean": "tables", "query=spreadsheets&top_k=1": "tables", "query=none": "", "query=%22%2A%28": ""} {
		if got := names(query); got != want {
			t.Errorf("%s finds %q, want %q", query, got, want)
		}
	}
	if got := names("query=spreadsheets&top_k=0"); got != "tables" { // clamped to 1
		t.Errorf("top_k 0 finds %q", got)
	}
	if got := names("query=spreadsheets&top_k=5000"); len(strings.Fields(got)) != 2 {
		t.Errorf("top_k 5000 finds %q", got)
	}
}

func TestSharing(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	id := s.send("/v1/skills", openai, append(parts("tables", "d"), part{"shared_with", "", "q, r"})...)["id"].(string)
	asQ, asZ := with(openai, "X-Project", "q"), with(openai, "X-Project", "z")
	if got := s.ok("GET", "/v1/skills/"+id, asQ, nil); got["shared_with"] != nil {
		t.Errorf("q sees with whom it is shared: %v", got)
	}
	if got := s.ok("GET", "/v1/skills/"+id, openai, nil); fmt.Sprint(got["shared_with"]) != "[q r]" {
		t.Errorf("the owner sees %v", got)
	}
	for _, path := range []string{"", "/versions", "/versions/1", "/content", "/versions/1/content"} {
		if status, _, _ := s.do("GET", "/v1/skills/"+id+path, asQ, nil); status != 200 {
			t.Errorf("q reads %s: %d", path, status)
		}
		foreign, text, _ := s.do("GET", "/v1/skills/"+id+path, asZ, nil)
		unknown, other, _ := s.do("GET", "/v1/skills/skill_0"+path, asZ, nil)
		if foreign != 404 || unknown != 404 || strings.ReplaceAll(text, id, "skill_0") != other {
			t.Errorf("z reads %s: %d %s, unknown %d %s", path, foreign, text, unknown, other)
		}
	}
	if status, _, _ := s.do("DELETE", "/v1/skills/"+id, asQ, nil); status != 403 {
		t.Errorf("q deletes: %d", status)
	}
	s.ok("POST", "/v1/skills/"+id, openai, strings.NewReader(`{"shared_with":[]}`))
	if status, _, _ := s.do("GET", "/v1/skills/"+id, asQ, nil); status != 404 {
		t.Errorf("q reads what is not shared any more: %d", status)
	}
}

func TestUniqueDisplayTitleUnderTheBetaHeader(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	up := append(parts("tables", "d"), part{"display_title", "", "Tables"})
	if got := s.send("/v1/skills", beta, up...); got["display_title"] != "Tables" {
		t.Errorf("%v", got)
	}
	if text := s.refused("/v1/skills", beta, 400, up...); !strings.Contains(text, "Skill cannot reuse an existing display_title: Tables") {
		t.Error(text)
	}
	s.send("/v1/skills", ga, append(parts("tables", "d"), part{"display_name", "", "Tables"})...)
}

func TestWellKnown(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	id := s.send("/v1/skills", ga, parts("tables", "Cleans.")...)["id"].(string)
	s.send("/v1/skills", with(ga, "X-Project", "q"), parts("others", "x")...)
	want(t, "0.1", s.ok("GET", "/.well-known/skills/index.json", nil, nil),
		`{"skills":[{"name":"tables","description":"Cleans.","files":["SKILL.md","data/größe 1.csv","scripts/run.py"]}]}`)
	if status, text, _ := s.do("GET", "/.well-known/skills/tables/SKILL.md", nil, nil); status != 200 || text != manifest("tables", "Cleans.") {
		t.Errorf("SKILL.md: %d %s", status, text)
	}
	if status, text, _ := s.do("GET", "/.well-known/skills/tables/data/gr%C3%B6%C3%9Fe%201.csv", nil, nil); status != 200 || text != "a,b\n" {
		t.Errorf("csv: %d %s", status, text)
	}
	for _, path := range []string{"skills/tables/none", "skills/tables/scripts", "skills/tables/..%2f..%2fmanifest.json", "skills/others/SKILL.md", "agent-skills/others.zip", "agent-skills/tables"} {
		if status, _, _ := s.do("GET", "/.well-known/"+path, nil, nil); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
	index := s.ok("GET", "/.well-known/agent-skills/index.json", nil, nil)
	entry := index["skills"].([]any)[0].(map[string]any)
	status, archive, _ := s.do("GET", entry["url"].(string), nil, nil)
	if status != 200 || len(index["skills"].([]any)) != 1 || index["$schema"] != "https://schemas.agentskills.io/discovery/0.2.0/schema.json" {
		t.Errorf("%d %v", status, index)
	}
	if entry["type"] != "archive" || entry["digest"] != "sha256:"+sha(archive) {
		t.Errorf("%v", entry)
	}
	s.ok("DELETE", "/v1/skills/"+id, ga, nil)
	want(t, "deleted", s.ok("GET", "/.well-known/skills/index.json", nil, nil), `{"skills":[]}`)
}

func TestUpdateRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, catalog.Config{})
	id := s.send("/v1/skills", openai, parts("tables", "d")...)["id"].(string)
	for body, word := range map[string]string{
		`{}`: "default_version", `{"default_version":"x"}`: "x", `{"default_version":0}`: "default_version", `{"default_version":"9"}`: "9", `{"name":"x"}`: "name",
		`{"shared_with":"q"}`: "shared_with", `{"shared_with":["a b"]}`: "a b", `[]`: "object", `{"display_name":"a\nb"}`: "single line",
	} {
		status, text, _ := s.do("POST", "/v1/skills/"+id, openai, strings.NewReader(body))
		if status != 400 || !strings.Contains(text, word) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if text := s.refused("/v1/skills/"+id+"/versions", ga, 400, parts("chairs", "d")...); !strings.Contains(text, "tables") {
		t.Error(text)
	}
	s.refused("/v1/skills/skill_none/versions", ga, 404, parts("tables", "d")...)
}
