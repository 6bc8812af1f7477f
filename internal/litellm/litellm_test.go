package litellm

import (
	"archive/zip"
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// schema is that of LiteLLM's Prisma migration, as PostgreSQL has it; SQLite takes it too.
const schema = `CREATE TABLE "LiteLLM_SkillsTable" (
    "skill_id" TEXT NOT NULL PRIMARY KEY, "display_title" TEXT, "description" TEXT, "instructions" TEXT,
    "source" TEXT NOT NULL DEFAULT 'custom', "latest_version" TEXT, "metadata" %s DEFAULT '{}', "file_content" %s, "file_name" TEXT, "file_type" TEXT,
    "created_at" TIMESTAMP(3) NOT NULL, "created_by" TEXT, "updated_at" TIMESTAMP(3) NOT NULL, "updated_by" TEXT)`

func zipOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := w.Create(files[i])
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, files[i+1])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sample(t testing.TB) []Row {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	return []Row{
		{
			ID: "litellm_skill_1", Title: "Tables\tand \\ more\nlines", Description: "Cleans.", Metadata: `{"a": "b\tc"}`, Owner: "team:t1", CreatedAt: at,
			FileName: "tables.zip", Content: zipOf(t, "tables/SKILL.md", "---\nname: tables\ndescription: Cleans.\n---\nx\n", "tables/core/a.py", "1"),
		},
		{ID: "litellm_skill_2", Instructions: "Be kind.", Title: "Kindness", Description: "Is kind.", Metadata: "{}", CreatedAt: at.Add(time.Second)},
	}
}

func insert(t testing.TB, db *sql.DB, placeholder func(int) string) {
	t.Helper()
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	for _, r := range sample(t) {
		var marks []string
		for i := range 10 {
			marks = append(marks, placeholder(i+1))
		}
		_, err := db.Exec(`INSERT INTO "LiteLLM_SkillsTable" ("skill_id","display_title","description","instructions","metadata","file_content","file_name","created_by","created_at","updated_at")`+
			` VALUES (`+strings.Join(marks, ",")+`)`, r.ID, null(r.Title), null(r.Description), null(r.Instructions), r.Metadata, r.Content, null(r.FileName), null(r.Owner), r.CreatedAt, r.CreatedAt)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, source string) []Row {
	t.Helper()
	var got []Row
	if err := Read(t.Context(), source, func(r Row) error { got = append(got, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a copy?.db")
	db, err := sql.Open("sqlite", "file:"+strings.ReplaceAll(path, "?", "%3f"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(fmt.Sprintf(schema, "TEXT", "BLOB")); err != nil {
		t.Fatal(err)
	}
	insert(t, db, func(int) string { return "?" })
	db.Close()
	if diff := cmp.Diff(sample(t), read(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPostgreSQL uses a server of its own, where the programs of one are installed.
func TestPostgreSQL(t *testing.T) {
	t.Parallel()
	source, psql := startPostgres(t)
	db, err := sql.Open("pgx", source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(fmt.Sprintf(schema, "JSONB", "BYTEA")); err != nil {
		t.Fatal(err)
	}
	insert(t, db, func(i int) string { return "$" + strconv.Itoa(i) })
	if diff := cmp.Diff(sample(t), read(t, source)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	dump := filepath.Join(t.TempDir(), "dump.sql")
	if out, err := psql("pg_dump", "-t", `"LiteLLM_SkillsTable"`, "-f", dump).CombinedOutput(); err != nil {
		t.Skipf("pg_dump: %v %s", err, out)
	}
	if diff := cmp.Diff(sample(t), read(t, dump)); diff != "" {
		t.Errorf("dump (-want +got):\n%s", diff)
	}
}

// startPostgres runs a server in a folder of its own, as a user who is not root. psql makes a command that finds it.
func startPostgres(t *testing.T) (source string, psql func(name string, args ...string) *exec.Cmd) {
	t.Helper()
	bin := func(name string) string {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if len(found) == 0 {
			t.Skipf("needs PostgreSQL's %s: apt-get install postgresql", name)
		}
		return found[len(found)-1]
	}
	initdb, ctl := bin("initdb"), bin("pg_ctl")
	dir, err := os.MkdirTemp("/tmp", "lathe-pg-") //nolint:usetesting // the parents of TempDir are closed to other users, and socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var as *syscall.Credential
	if os.Geteuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Skip("PostgreSQL does not run as root, and there is no user nobody")
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	run := func(ctx context.Context, name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		cmd.Env = append(os.Environ(), "PGHOST="+dir, "PGUSER=lathe", "PGDATABASE=postgres", "LC_ALL=C")
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := run(t.Context(), initdb, "-D", data, "-U", "lathe", "-A", "trust", "-E", "UTF8", "-N").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	start := run(t.Context(), ctl, "-D", data, "-w", "-l", filepath.Join(dir, "log"), "-o", "-k "+dir+" -c listen_addresses='' -c fsync=off", "start")
	if err := start.Run(); err != nil {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Fatalf("pg_ctl: %v\n%s", err, text)
	}
	t.Cleanup(func() {
		if out, err := run(context.WithoutCancel(t.Context()), ctl, "-D", data, "-m", "immediate", "-w", "stop").CombinedOutput(); err != nil {
			t.Errorf("pg_ctl stop: %v\n%s", err, out)
		}
	})
	return "postgres://lathe@/postgres?host=" + dir, func(name string, args ...string) *exec.Cmd {
		cmd := run(t.Context(), bin(name), args...)
		cmd.SysProcAttr = nil // the dump is written into the test's folder
		return cmd
	}
}

func TestDump(t *testing.T) {
	t.Parallel()
	rows := sample(t)
	text := "-- PostgreSQL database dump\n\nCOPY public.\"Other\" (a) FROM stdin;\nx\n\\.\n\n" +
		"COPY public.\"LiteLLM_SkillsTable\" (skill_id, display_title, description, instructions, source, metadata, file_content, file_name, created_at, created_by) FROM stdin;\n" +
		"litellm_skill_1\tTables\\tand \\\\ more\\nlines\tCleans.\t\\N\tcustom\t{\"a\": \"b\\\\tc\"}\t\\\\x" + hex.EncodeToString(rows[0].Content) + "\ttables.zip\t2026-01-02 03:04:05.678\tteam:t1\n" +
		"litellm_skill_2\tKindness\tIs kind.\tBe kind.\tcustom\t{}\t\\N\t\\N\t2026-01-02 03:04:06.678\t\\N\n\\.\n\nCREATE INDEX x;\n"
	path := filepath.Join(t.TempDir(), "dump.sql")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rows, read(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnreadableSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, test := range map[string]struct{ text, says string }{
		"none":        {"", "no dump"},
		"other":       {"CREATE TABLE x;\n", "pg_dump"},
		"short row":   {"COPY public.\"LiteLLM_SkillsTable\" (skill_id, created_at) FROM stdin;\nx\n\\.\n", "1 values for 2 columns"},
		"no id":       {"COPY public.\"LiteLLM_SkillsTable\" (created_at) FROM stdin;\n", "skill_id"},
		"not hex":     {"COPY \"LiteLLM_SkillsTable\" (skill_id, created_at, file_content) FROM stdin;\nx\t2026-01-01 00:00:00\tabc\n", "hexadecimal"},
		"not a time":  {"COPY \"LiteLLM_SkillsTable\" (skill_id, created_at) FROM stdin;\nx\tyesterday\n", "not a time"},
		"bad sqlite":  {"SQLite format 3\x00rest", "cannot be read"},
		"not a table": {"COPY public.\"LiteLLM_SkillsTable_old\" (skill_id) FROM stdin;\n", "no dump"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Read(t.Context(), path, func(Row) error { return nil })
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
	if err := Read(t.Context(), filepath.Join(dir, "nothing"), nil); err == nil {
		t.Error("a file that is not there is read")
	}
}

func TestPackage(t *testing.T) {
	t.Parallel()
	const front = "---\nname: tables\ndescription: Cleans.\n---\n"
	for _, test := range []struct {
		name  string
		row   Row
		files string // names, or the refusal
		desc  string
		note  string
	}{
		{"zip with a folder", Row{Content: zipOf(t, "tables/SKILL.md", front, "tables/core/a.py", "1")}, "tables: SKILL.md core/a.py", "Cleans.", ""},
		{"zip without a folder keeps core/", Row{Content: zipOf(t, "SKILL.md", front, "core/a.py", "1")}, "tables: SKILL.md core/a.py", "Cleans.", "no folder"},
		{"a SKILL.md alone", Row{Content: []byte(front), FileName: "tables/SKILL.md"}, "tables: SKILL.md", "Cleans.", ""},
		{"a SKILL.md under another name", Row{Content: []byte(front), FileName: "x.md"}, "tables: SKILL.md", "Cleans.", ""},
		{"instructions only", Row{Title: "My Skill", Description: `Says "a: b".`, Instructions: "Do."}, "my-skill: SKILL.md", `Says "a: b".`, ""},
		{"no front matter", Row{Title: "T", Description: "D.", Content: zipOf(t, "x/SKILL.md", "# Text\n", "x/a.py", "1")}, "t: SKILL.md a.py", "D.", "made of the row"},
		{"no SKILL.md", Row{Title: "T", Description: "D.", Instructions: "I.", Content: zipOf(t, "x/README.md", "r", "x/a.py", "1")}, "t: README.md SKILL.md a.py", "D.", "made of the row"},
		{"no title", Row{ID: "litellm_skill_0a", Description: "D.", Instructions: "I."}, "litellm-skill-0a: SKILL.md", "D.", ""},
		{"parameters", Row{Content: []byte(front), Metadata: `{"parameters":{}}`}, "tables: SKILL.md", "Cleans.", "metadata is not taken over"},
		{"nothing at all", Row{ID: "x"}, "neither a file nor instructions", "", ""},
		{"hostile", Row{Content: zipOf(t, "x/SKILL.md", front, "../../etc/passwd", "x")}, "'..' in its path", "", ""},
		{"broken zip", Row{Content: []byte("PK\x03\x04rest")}, "no zip archive", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, notes, err := test.row.Package()
			if p == nil {
				if err == nil || !strings.Contains(err.Error(), test.files) {
					t.Errorf("refused: %v, want %q", err, test.files)
				}
				return
			}
			got := p.Meta.Name + ":"
			for _, f := range p.Files {
				got += " " + f.Path
			}
			if got != test.files || p.Meta.Description != test.desc || !strings.Contains(strings.Join(notes, "\n"), test.note) {
				t.Errorf("%s, %q, notes %q", got, p.Meta.Description, notes)
			}
		})
	}
}
