package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lathe-gateway/lathe/internal/skill"
)

// gateway is where skills are pushed to and pulled from.
type gateway struct {
	URL string `env:"LATHE_URL" default:"http://127.0.0.1:4747" help:"The gateway (${default})."`
	Key string `env:"LATHE_KEY" help:"API key, where the gateway has keys."`
}

// anthropicVersion chooses Anthropic's dialect for uploads, which takes more files than OpenAI's.
const anthropicVersion = "2026-10-21"

// call sends a request and returns the answer of one that succeeded. Close its body.
func (g *gateway) call(ctx context.Context, method, path string, body io.Reader, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(strings.TrimRight(g.URL, "/"), "/v1")+path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if g.Key != "" {
		req.Header.Set("Authorization", "Bearer "+g.Key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the gateway does not answer: %w: start it with lathe serve, or name it with --url", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status is the error; the text is as much as came
	var said struct{ Error struct{ Message string } }
	if json.Unmarshal(text, &said) == nil && said.Error.Message != "" {
		return nil, fmt.Errorf("the gateway answered %s: %s", resp.Status, said.Error.Message)
	}
	return nil, fmt.Errorf("the gateway answered %s: %s", resp.Status, bytes.TrimSpace(text))
}

func (g *gateway) json(ctx context.Context, method, path string, body io.Reader, out any, headers ...string) error {
	resp, err := g.call(ctx, method, path, body, headers...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("the gateway's answer is not what was expected: %w: is there a lathe at %s?", err, g.URL)
	}
	return nil
}

// remoteSkill and remoteVersion are of OpenAI's dialect.
type remoteSkill struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Default     string `json:"default_version"`
	Latest      string `json:"latest_version"`
	CreatedAt   int64  `json:"created_at"`
}

type remoteVersion struct {
	ID          string `json:"id"`
	Version     string `json:"version"`
	Description string `json:"description"`
	CreatedAt   int64  `json:"created_at"`
}

type remoteList[T any] struct {
	Data    []T    `json:"data"`
	LastID  string `json:"last_id"`
	HasMore bool   `json:"has_more"`
}

// skills walks the pages of the list, and stops after most; query has further parameters.
func (g *gateway) skills(ctx context.Context, query url.Values, most int) ([]remoteSkill, error) {
	var out []remoteSkill
	query.Set("limit", "100")
	for {
		var page remoteList[remoteSkill]
		if err := g.json(ctx, http.MethodGet, "/v1/skills?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Data...)
		if !page.HasMore || len(page.Data) == 0 || len(out) >= most {
			return out[:min(len(out), most)], nil
		}
		query.Set("after", page.LastID)
	}
}

const allSkills = 1 << 30

// find returns the skill with an id, or the only one with a name.
func (g *gateway) find(ctx context.Context, word string, own bool) (*remoteSkill, error) {
	if strings.HasPrefix(word, "skill_") || strings.HasPrefix(word, "litellm_skill_") {
		var s remoteSkill
		return &s, g.json(ctx, http.MethodGet, "/v1/skills/"+url.PathEscape(word), nil, &s)
	}
	query := url.Values{}
	if own {
		query.Set("source", "custom")
	}
	all, err := g.skills(ctx, query, allSkills)
	if err != nil {
		return nil, err
	}
	var found []remoteSkill
	for _, s := range all {
		if s.Name == word {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w: there is no skill named %q: lathe skill list shows what there is", errNoSuchSkill, word)
	case 1:
		return &found[0], nil
	}
	ids := make([]string, len(found))
	for i, s := range found {
		ids[i] = s.ID
	}
	return nil, fmt.Errorf("%d skills are named %q: name one by its id: %s", len(found), word, strings.Join(ids, ", "))
}

var errNoSuchSkill = errors.New("not found")

type skillPushCmd struct {
	gateway
	ID      string   `help:"Add a version to the skill with this id."`
	New     bool     `help:"Make a new skill, also where there is one with the name."`
	Default bool     `help:"Make the version the default one."`
	Share   []string `placeholder:"PROJECT" help:"Projects that may read a new skill."`
	Path    string   `arg:"" help:"The skill's folder or archive."`
}

// Run uploads the skill.
func (c *skillPushCmd) Run(ctx context.Context, t *terminal) error {
	p, err := packable(c.Path, t)
	if err != nil {
		return err
	}
	id := c.ID
	if id == "" && !c.New {
		switch s, err := c.find(ctx, p.Meta.Name, true); {
		case err == nil:
			id = s.ID
		case !errors.Is(err, errNoSuchSkill):
			return err
		}
	}
	var b bytes.Buffer
	if err := p.WriteZip(&b); err != nil {
		return err
	}
	headers := []string{"Content-Type", "application/zip"}
	if len(p.Files) > skill.OpenAI.Files || p.Size() <= skill.Anthropic.TotalBytes {
		headers = append(headers, "Anthropic-Version", anthropicVersion)
	}
	path, query := "/v1/skills", url.Values{"shared_with": c.Share}
	if id != "" {
		path, query = "/v1/skills/"+url.PathEscape(id)+"/versions", url.Values{}
		if c.Default {
			query.Set("default", "true")
		}
	}
	var made struct {
		ID      string `json:"id"`
		SkillID string `json:"skill_id"`
	}
	if err := c.json(ctx, http.MethodPost, path+"?"+query.Encode(), &b, &made, headers...); err != nil {
		return err
	}
	if made.SkillID != "" {
		fmt.Fprintf(t.out, "%s: version %s of %s\n", p.Meta.Name, made.ID, made.SkillID)
		return nil
	}
	fmt.Fprintf(t.out, "%s: %s\n", p.Meta.Name, made.ID)
	return nil
}

type skillPullCmd struct {
	gateway
	Version string `default:"default" help:"Version: its number or id, latest, or default (${default})."`
	Out     string `short:"o" default:"." placeholder:"DIR" help:"Where the skill's folder is made."`
	Skill   string `arg:"" help:"Id or name."`
}

// Run downloads the skill and makes its folder.
func (c *skillPullCmd) Run(ctx context.Context, t *terminal) error {
	s, err := c.find(ctx, c.Skill, false)
	if err != nil {
		return err
	}
	resp, err := c.call(ctx, http.MethodGet, "/v1/skills/"+url.PathEscape(s.ID)+"/versions/"+url.PathEscape(c.Version)+"/content", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, skill.Lenient.TotalBytes*2))
	if err != nil {
		return err
	}
	// The gateway may be anybody's: what it sends is read as any other archive.
	p, report, err := skill.ReadZip(bytes.NewReader(data), int64(len(data)), skill.Limits{ZipBytes: int64(len(data))})
	if err == nil && p == nil {
		err = fmt.Errorf("the gateway sent what is no skill: %s", report.Refusals()[0])
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(c.Out, p.Meta.Name)
	if err := writePackage(dir, p); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s: %d files\n", dir, len(p.Files))
	return nil
}

// writePackage makes a folder that is not there yet.
func writePackage(dir string, p *skill.Package) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // folders for people
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as above
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%s is there already: move it away, or name another folder with -o", dir)
		}
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range p.Files {
		mode := os.FileMode(0o644)
		if f.Exec {
			mode = 0o755
		}
		if err := root.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(f.Path, f.Data, mode); err != nil {
			return err
		}
	}
	return nil
}

type skillListCmd struct{ gateway }

// Run lists all skills that the key may read.
func (c *skillListCmd) Run(ctx context.Context, t *terminal) error {
	all, err := c.skills(ctx, url.Values{}, allSkills)
	if err != nil {
		return err
	}
	return table(t, all)
}

type skillSearchCmd struct {
	gateway
	Limit int      `default:"10" help:"The most to show (${default})."`
	Words []string `arg:"" help:"Words, or beginnings of words."`
}

// Run shows what was found, the best first.
func (c *skillSearchCmd) Run(ctx context.Context, t *terminal) error {
	found, err := c.skills(ctx, url.Values{"query": {strings.Join(c.Words, " ")}}, max(c.Limit, 1))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		fmt.Fprintln(t.err, "nothing found")
		return exitCode(1)
	}
	return table(t, found)
}

func table(t *terminal, skills []remoteSkill) error {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tVERSION\tDESCRIPTION")
	for _, s := range skills {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.ID, s.Name, s.Default, brief(s.Description))
	}
	return w.Flush()
}

// brief is the first line of a text, at most 80 characters of it.
func brief(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 80 {
		s = string(r[:77]) + "..."
	}
	return s
}

type skillShowCmd struct {
	gateway
	Skill string `arg:"" help:"Id or name."`
}

// Run shows one skill and its versions, the newest first.
func (c *skillShowCmd) Run(ctx context.Context, t *terminal) error {
	s, err := c.find(ctx, c.Skill, false)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s  %s\n%s\n\n", s.ID, s.Name, s.Description)
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERSION\tID\tCREATED\tDESCRIPTION")
	after := ""
	for {
		var page remoteList[remoteVersion]
		if err := c.json(ctx, http.MethodGet, "/v1/skills/"+url.PathEscape(s.ID)+"/versions?limit=100"+after, nil, &page); err != nil {
			return err
		}
		for _, v := range page.Data {
			mark := ""
			if v.Version == s.Default {
				mark = " (default)"
			}
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\n", v.Version, mark, v.ID, time.Unix(v.CreatedAt, 0).UTC().Format(time.DateTime), brief(v.Description))
		}
		if !page.HasMore || len(page.Data) == 0 {
			return w.Flush()
		}
		after = "&after=" + url.QueryEscape(page.LastID)
	}
}

type skillRmCmd struct {
	gateway
	Version string `help:"Delete only this version: its number or id."`
	Skill   string `arg:"" help:"Id or name."`
}

// Run deletes.
func (c *skillRmCmd) Run(ctx context.Context, t *terminal) error {
	s, err := c.find(ctx, c.Skill, true)
	if err != nil {
		return err
	}
	path, what := "/v1/skills/"+url.PathEscape(s.ID), s.ID
	if c.Version != "" {
		path, what = path+"/versions/"+url.PathEscape(c.Version), "version "+c.Version+" of "+s.ID
	}
	resp, err := c.call(ctx, http.MethodDelete, path, nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	fmt.Fprintf(t.out, "deleted %s\n", what)
	return nil
}
