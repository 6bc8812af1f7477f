// Package litellm reads the skills of a LiteLLM proxy out of its database, or a copy of it: rows as they are stored there, and a package
// for each. It writes nothing and knows no catalogue. Only cmd/lathe imports it.
package litellm

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/lathe-gateway/lathe/internal/skill"
)

// Row is a row of LiteLLM_SkillsTable. Text that is NULL is "".
type Row struct {
	ID, Title, Description, Instructions string
	// Metadata is JSON, free.
	Metadata string
	// Content is the uploaded file: a zip, or a SKILL.md alone, called FileName; nil for a skill of instructions only.
	Content  []byte
	FileName string
	// Owner is a user's id, or team:, org: or key: and an id; "" for none.
	Owner     string
	CreatedAt time.Time
}

const table = `"LiteLLM_SkillsTable"`

var columns = []string{
	"skill_id", "display_title", "description", "instructions", "metadata", "file_content", "file_name", "created_by", "created_at",
}

// Read calls fn for each row, the oldest first. source is a URL postgres://..., the path of an SQLite copy of the table, or the path of a dump that
// pg_dump has written as text. One row is in memory at a time, except from a dump's line.
func Read(ctx context.Context, source string, fn func(Row) error) error {
	if strings.HasPrefix(source, "postgres://") || strings.HasPrefix(source, "postgresql://") {
		return query(ctx, "pgx", source, fn)
	}
	f, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("the database is neither a postgres:// URL nor a file: %w", err)
	}
	defer f.Close()
	head := make([]byte, 16)
	n, _ := f.ReadAt(head, 0) // a short file is no SQLite
	if string(head[:n]) == "SQLite format 3\x00" {
		return query(ctx, "sqlite", (&url.URL{Scheme: "file", Opaque: url.PathEscape(source), RawQuery: "mode=ro"}).String(), fn)
	}
	return readDump(f, fn)
}

// query reads by database/sql. The oldest releases lack some columns, so those that are there are asked for first.
func query(ctx context.Context, driver, source string, fn func(Row) error) error {
	db, err := sql.Open(driver, source)
	if err != nil {
		return fmt.Errorf("the database cannot be opened: %w", err)
	}
	defer db.Close()
	present, err := columnsOf(ctx, db)
	if err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, `SELECT "`+strings.Join(present, `", "`)+`" FROM `+table+` ORDER BY "created_at", "skill_id"`)
	if err != nil {
		return fmt.Errorf("the table %s cannot be read: %w", table, err)
	}
	defer rows.Close()
	for rows.Next() {
		values, places := make([]any, len(present)), make([]any, len(present))
		for i := range values {
			places[i] = &values[i]
		}
		if err := rows.Scan(places...); err != nil {
			return err
		}
		var r Row
		for i, name := range present {
			if err := r.set(name, values[i]); err != nil {
				return err
			}
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// columnsOf are the columns of the table that are read.
func columnsOf(ctx context.Context, db *sql.DB) ([]string, error) {
	probe, err := db.QueryContext(ctx, "SELECT * FROM "+table+" WHERE 1 = 0")
	if err != nil {
		return nil, fmt.Errorf("the table %s cannot be read: %w", table, err)
	}
	defer probe.Close()
	has, err := probe.Columns()
	if err = errors.Join(err, probe.Err()); err != nil {
		return nil, err
	}
	return known(has)
}

// known are the columns that are read, of those that a table has.
func known(has []string) ([]string, error) {
	var out []string
	for _, name := range columns {
		if slices.Contains(has, name) {
			out = append(out, name)
		}
	}
	for _, name := range []string{"skill_id", "created_at"} {
		if !slices.Contains(out, name) {
			return nil, fmt.Errorf("the table %s has no column %s: is it LiteLLM's?", table, name)
		}
	}
	return out, nil
}

func (r *Row) set(column string, value any) error {
	if value == nil {
		return nil
	}
	text := func() string {
		switch v := value.(type) {
		case string:
			return v
		case []byte:
			return string(v)
		}
		b, err := json.Marshal(value) // JSON columns come decoded from some drivers
		if err != nil {
			return fmt.Sprint(value)
		}
		return string(b)
	}
	var err error
	switch column {
	case "skill_id":
		r.ID = text()
	case "display_title":
		r.Title = text()
	case "description":
		r.Description = text()
	case "instructions":
		r.Instructions = text()
	case "metadata":
		r.Metadata = text()
	case "file_content":
		r.Content = []byte(text())
	case "file_name":
		r.FileName = text()
	case "created_by":
		r.Owner = text()
	case "created_at":
		at, isTime := value.(time.Time)
		if !isTime {
			at, err = readTime(text())
		}
		r.CreatedAt = at.UTC()
	}
	return err
}

func readTime(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999-07", "2006-01-02 15:04:05 -0700 MST"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time", s)
}

// Package makes a package of a row. LiteLLM checks nothing that is uploaded: where the front matter of a SKILL.md cannot be used, or there is
// no SKILL.md, the row's title, description and instructions take its place. notes say what was changed, or what other readers would refuse. The error says why
// it cannot be loaded.
func (r Row) Package() (p *skill.Package, notes []string, err error) {
	files, err := r.files()
	if err != nil {
		return nil, nil, err
	}
	if len(files) == 0 { // a skill of instructions only
		if strings.TrimSpace(r.Instructions) == "" {
			return nil, nil, errors.New("it has neither a file nor instructions")
		}
		files = r.mended(nil)
	}
	p, report := skill.Read(files, skill.Limits{})
	if p == nil {
		was := report.Refusals()
		if p, report = skill.Read(r.mended(files), skill.Limits{}); p == nil {
			return nil, nil, errors.New(was[0].String())
		}
		notes = append(notes, "front matter made of the row's title and description: "+was[0].String())
	}
	for _, f := range report.Findings {
		notes = append(notes, f.String())
	}
	if m := strings.TrimSpace(r.Metadata); m != "" && m != "{}" && m != "null" {
		notes = append(notes, "its metadata is not taken over: skills have no parameters here")
	}
	return p, notes, nil
}

func (r Row) files() ([]skill.File, error) {
	switch {
	case len(r.Content) == 0:
		return nil, nil
	case bytes.HasPrefix(r.Content, []byte("PK\x03\x04")):
		files, report, err := skill.Unzip(bytes.NewReader(r.Content), int64(len(r.Content)), skill.Limits{})
		if err == nil && !report.Loads() {
			err = errors.New(report.Refusals()[0].String())
		}
		return files, err
	}
	name := r.FileName
	if name == "" || !strings.EqualFold(path.Base(name), skill.Manifest) {
		name = skill.Manifest
	}
	return []skill.File{{Path: strings.TrimPrefix(name, "/"), Data: r.Content}}, nil
}

// mended puts a SKILL.md of the row's own words in front of what there is: the text behind its front matter, or the instructions.
func (r Row) mended(files []skill.File) []skill.File {
	at, dir := -1, ""
	for i, f := range files {
		if strings.EqualFold(path.Base(f.Path), skill.Manifest) && strings.Count(f.Path, "/") <= 1 && (at < 0 || len(f.Path) < len(files[at].Path)) {
			at = i
		}
		if top, _, in := strings.Cut(f.Path, "/"); in {
			dir = top + "/"
		}
	}
	text, out := r.Instructions, append([]skill.File{}, files...)
	if at >= 0 {
		text, dir = body(string(files[at].Data)), files[at].Path[:strings.LastIndex(files[at].Path, "/")+1]
		out = append(out[:at], out[at+1:]...)
	}
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) } // JSON's strings are YAML's
	description := r.Description
	if description == "" {
		description = r.Title
	}
	name := skill.Slug(r.Title)
	if name == "" {
		name = skill.Slug(strings.TrimSuffix(dir, "/"))
	}
	if name == "" {
		name = skill.Slug(r.ID)
	}
	if len(files) == 0 {
		dir = name + "/"
	}
	manifest := fmt.Sprintf("---\nname: %s\ndescription: %s\n---\n\n%s\n", quote(name), quote(description), strings.TrimSpace(text))
	return append(out, skill.File{Path: dir + skill.Manifest, Data: []byte(manifest)})
}

// body is a SKILL.md without its front matter, where it has any that is closed.
func body(text string) string {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	rest, fenced := strings.CutPrefix(text, "---\n")
	if _, after, closed := strings.Cut(rest, "\n---\n"); fenced && closed {
		return after
	}
	return text
}
