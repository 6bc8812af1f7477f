// Package skills tests the skills of this repository as a model uses them: mounted below /skills in a real gVisor sandbox with the image
// `python`. It checks the files that their scripts make. It has no code outside of tests.
package skills

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/image"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/skill/catalog"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

const (
	library  = "../../skills"
	patience = 2 * time.Minute // only a failure reaches it
)

// TestValid: what we give away passes the rules of all.
func TestValid(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob(library + "/*/SKILL.md")
	if err != nil || len(dirs) < 4 {
		t.Fatalf("%d skills, %v", len(dirs), err)
	}
	for _, path := range dirs {
		p, report, err := skill.ReadFolder(filepath.Dir(path), skill.Limits{})
		if err != nil || p == nil || len(report.Findings) > 0 {
			t.Errorf("%s: %v, %v", path, report.Findings, err)
		}
	}
}

// gateway is what runs the skills: containers in gVisor, with our folder as the operator's library.
type gateway struct {
	t       *testing.T
	manager *container.Manager
	ctx     context.Context //nolint:containedctx // a test's principal
}

var buildGuest = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "guest")
	build := exec.Command("go", "build", "-o", path, "github.com/lathe-gateway/lathe/cmd/lathe-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest: %w: %s", err, out)
	}
	return os.ReadFile(path)
})

func newGateway(t *testing.T) *gateway {
	t.Helper()
	runsc, err := filepath.Abs("../../bin/runsc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(runsc); err != nil {
		t.Skip("needs bin/runsc: make build")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: folders of skills are mounted into sandboxes")
	}
	dirs := []string{"/var/lib/lathe/images"}
	if dir := os.Getenv("LATHE_IMAGE_DIR"); dir != "" {
		dirs = []string{dir}
	}
	img, err := image.Find("python", dirs)
	if err != nil {
		t.Skip("needs the image python: make image")
	}
	guest, err := buildGuest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	background := context.WithoutCancel(t.Context())
	db, err := sqlite.Open(background, filepath.Join(dir, "lathe.db"))
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	skills, err := catalog.New(background, catalog.Config{Store: db.Skills(), Blobs: blobs, Dir: filepath.Join(dir, "skills"), Library: library})
	if err != nil {
		t.Fatal(err)
	}
	backend, err := gvisor.New(gvisor.Config{Runsc: runsc, StateDir: filepath.Join(dir, "sandboxes"), Guest: guest, Image: img.Dir})
	if err != nil {
		t.Fatal(err)
	}
	m, err := container.New(container.Config{
		Store: db, Blobs: blobs, Backend: backend, Dir: filepath.Join(dir, "containers"), Limits: sandbox.Defaults(), Reserve: -1, MaxLive: 4, Skills: skills,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close(), backend.Close(), skills.Close(), blobs.Close(), db.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := m.Reconcile(background); err != nil {
		t.Fatal(err)
	}
	return &gateway{t, m, auth.WithPrincipal(background, auth.Principal{Name: "t", Project: "p"})}
}

// desk is a container with one skill and the user's files.
type desk struct {
	*gateway
	t *testing.T
	w tool.Workspace
}

func (g *gateway) open(t *testing.T, name string, files map[string]string) *desk {
	t.Helper()
	w, err := g.manager.Open(g.ctx, &turn.Hosted{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	skills, err := g.manager.Skills(g.ctx, &turn.Hosted{Skills: []turn.SkillRef{{Type: "anthropic", ID: name}}})
	if err != nil {
		t.Fatal(err)
	}
	w.Mount(skills)
	for _, s := range skills {
		t.Cleanup(s.Release)
	}
	d := &desk{g, t, w}
	code := ""
	for name, text := range files {
		code += fmt.Sprintf("open(%q, 'wb').write(bytes.fromhex('%x'))\n", name, text)
	}
	d.run(tool.Python, code)
	return d
}

func (d *desk) run(kind, code string) *tool.Outcome {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.ctx, patience)
	defer cancel()
	out, err := d.w.Run(ctx, tool.Call{Tool: kind, Code: code}, nil)
	if err != nil {
		d.t.Fatalf("%s: %v", code, err)
	}
	return out
}

// sh runs a command as a model would, and returns what it printed and the files that it made.
func (d *desk) sh(command string, says ...string) map[string]string {
	d.t.Helper()
	out := d.run(tool.Bash, command)
	text := ""
	for _, o := range out.Outputs {
		text += o.Text
	}
	for _, s := range says {
		if !strings.Contains(text, s) {
			d.t.Errorf("%s\ndoes not say %q:\n%s", command, s, text)
		}
	}
	if out.ExitCode != 0 {
		d.t.Fatalf("%s: exit %d:\n%s", command, out.ExitCode, text)
	}
	made := map[string]string{}
	for _, f := range out.Files {
		_, r, err := d.manager.OpenFile(d.ctx, f.Container, f.ID)
		if err != nil {
			d.t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			d.t.Fatal(err)
		}
		made[filepath.Base(f.Path)] = string(data)
	}
	return made
}

// parts unpacks an Office file, and checks that each XML part is well formed.
func parts(t *testing.T, data string) map[string]string {
	t.Helper()
	r, err := zip.NewReader(strings.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatalf("no Office file: %v", err)
	}
	out := map[string]string{}
	for _, f := range r.File {
		body, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		body.Close()
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name] = string(text)
		if !strings.HasSuffix(f.Name, ".xml") && !strings.HasSuffix(f.Name, ".rels") {
			continue
		}
		for dec := xml.NewDecoder(bytes.NewReader(text)); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
		}
	}
	return out
}

const sales = "region,month,amount\nnorth,2026-01,100.5\nsouth,2026-01,200\nnorth,2026-02,50\nsouth,2026-02,\n,2026-02,7\n"

func TestSkillsRun(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	t.Run("spreadsheet-analyst", func(t *testing.T) { spreadsheets(t, g) })
	t.Run("chart-maker", func(t *testing.T) { charts(t, g) })
	t.Run("report-writer", func(t *testing.T) { reports(t, g) })
	t.Run("data-cleaner", func(t *testing.T) { cleaning(t, g) })
}

func spreadsheets(t *testing.T, g *gateway) {
	d := g.open(t, "spreadsheet-analyst", map[string]string{"sales.csv": sales})
	made := d.sh("python3 /skills/spreadsheet-analyst/scripts/pivot.py sales.csv --by region --value amount --agg sum -o /mnt/data/summary.xlsx",
		"1 rows without a value in region", "200.0", "150.5", "5 rows in 3 groups")
	book := parts(t, made["summary.xlsx"])
	if sheet := book["xl/worksheets/sheet1.xml"]; !strings.Contains(sheet, "<f>SUM(B2:B4)</f>") || !strings.Contains(sheet, "150.5") {
		t.Errorf("the sheet: %s", sheet)
	}
	if book["xl/charts/chart1.xml"] == "" {
		t.Error("there is no chart")
	}
	d.run(tool.Python, `
import openpyxl
b = openpyxl.Workbook(); s = b.active; s.title = 'Q1'
s.append(['Quarterly figures']); s.append([]); s.append(['Item', 'Price']); s.append(['a', '1,200']); s.append(['b', '$5']); s['D9'] = '=B4*2'
h = b.create_sheet('Notes'); h.sheet_state = 'hidden'; h['A1'] = 'x'
b.save('book.xlsx')`)
	d.sh("python3 /skills/spreadsheet-analyst/scripts/inspect_workbook.py book.xlsx",
		"sheet 'Q1'", "header in row 3: use --header 3", "'Notes' (hidden)", "formulas: 1", "look like numbers stored as text")
	d.sh("python3 /skills/spreadsheet-analyst/scripts/inspect_workbook.py summary.xlsx", "sheet 'Summary': A1:B5")
	d.sh("python3 /skills/spreadsheet-analyst/scripts/pivot.py sales.csv --by none --value amount 2>&1 | grep 'there are region, month, amount'", "no column 'none'")
}

func charts(t *testing.T, g *gateway) {
	d := g.open(t, "chart-maker", map[string]string{"sales.csv": sales})
	made := d.sh("python3 /skills/chart-maker/scripts/chart.py sales.csv --kind bar --x region --y amount --agg sum --title 'Sales by region' -o /mnt/data/sales.png",
		"bar of amount: 2 values from 5 rows")
	img, err := png.Decode(strings.NewReader(made["sales.png"]))
	if err != nil {
		t.Fatal(err)
	}
	if size := img.Bounds().Size(); size.X < 1200 || size.Y < 600 {
		t.Errorf("the picture has %v", size)
	}
	colours := map[any]bool{}
	for x := range img.Bounds().Dx() {
		colours[img.At(x, img.Bounds().Dy()/2)] = true
	}
	if len(colours) < 3 {
		t.Error("the picture is empty")
	}
	for _, kind := range []string{"line", "area", "barh", "heatmap"} {
		made := d.sh("python3 /skills/chart-maker/scripts/chart.py sales.csv --kind "+kind+" --x month --y amount --by region --agg mean --title 'By month' -o /mnt/data/"+kind+".svg", kind+" of amount")
		if svg := made[kind+".svg"]; !strings.Contains(svg, "<svg") || !strings.Contains(svg, ">By month</text>") || !strings.Contains(svg, "north") {
			t.Errorf("%s: %d bytes without what must be in it", kind, len(svg))
		}
	}
	for _, args := range []string{"--kind hist --y amount", "--kind box --x region --y amount", "--kind scatter --x month --y amount"} {
		if args == "--kind scatter --x month --y amount" {
			args = "--kind scatter --x amount --y amount"
		}
		if made := d.sh("python3 /skills/chart-maker/scripts/chart.py sales.csv " + args + " -o /mnt/data/x.pdf"); !strings.HasPrefix(made["x.pdf"], "%PDF") {
			t.Errorf("%s: no PDF", args)
		}
	}
	d.sh("python3 /skills/chart-maker/scripts/chart.py sales.csv --kind bar --x region --y amount -o /mnt/data/no.png 2>&1 | grep 'say how to combine them'")
}

func reports(t *testing.T, g *gateway) {
	const markdown = "# Findings\n\nSales **doubled** in the *south* & east <2026>, see [the data](https://example.com/a?b=1&c=2).\n\n" +
		"1. First\n2. Second\n  - nested\n\ntext\n\n1. Again\n\n| Region | Sales |\n|---|---:|\n| north | 150.5 |\n| south \\| east | 200 | 3 |\n\n" +
		"![Sales by region](chart.png)\n\n![gone](none.png)\n\n> quoted\n\n```\ncode  <here>\n```\n\n\\pagebreak\n\n## Method\n\nSums.\n"
	d := g.open(t, "report-writer", map[string]string{"report.md": markdown})
	d.run(tool.Python, "from PIL import Image; Image.new('RGB', (400, 200), 'blue').save('chart.png')")
	made := d.sh("python3 /skills/report-writer/scripts/report.py report.md -o /mnt/data/report.docx --title 'Sales & more' --author 'Finance' --toc",
		"warning: table 1, row 3: 3 cells instead of 2", "warning: the image none.png is missing", "2 headings", "1 tables", "1 images")
	doc := parts(t, made["report.docx"])
	body := doc["word/document.xml"]
	for _, want := range []string{
		`<w:pStyle w:val="Heading1"/>`, `<w:pStyle w:val="Heading2"/>`, `<w:b/></w:rPr><w:t xml:space="preserve">doubled</w:t>`, `<w:i/>`, "&amp; east &lt;2026&gt;",
		`<w:numId w:val="2"/>`, `<w:numId w:val="3"/>`, `<w:ilvl w:val="1"/>`, `<w:jc w:val="right"/>`, "south | east", `<w:drawing>`, "Figure 1: Sales by region", `<w:br w:type="page"/>`,
		"code  &lt;here&gt;", `TOC \o`, "Sales &amp; more",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the document has no %s", want)
		}
	}
	if _, err := png.Decode(strings.NewReader(doc["word/media/image1.png"])); err != nil {
		t.Errorf("the image: %v", err)
	}
	relations(t, doc)
}

// relations checks that all that the document refers to is there, and that every part has a type: Word refuses a file without.
func relations(t *testing.T, doc map[string]string) {
	t.Helper()
	var rels struct {
		Relationship []struct {
			ID, Target, TargetMode string `xml:",attr"`
		}
	}
	if err := xml.Unmarshal([]byte(strings.ReplaceAll(doc["word/_rels/document.xml.rels"], "Id=", "ID=")), &rels); err != nil {
		t.Fatal(err)
	}
	for _, r := range rels.Relationship {
		if r.TargetMode == "" && doc["word/"+r.Target] == "" {
			t.Errorf("%s is not there", r.Target)
		}
		if strings.HasPrefix(r.ID, "rId1") && len(r.ID) > 4 && !strings.Contains(doc["word/document.xml"], `"`+r.ID+`"`) {
			t.Errorf("%s is not used", r.ID)
		}
	}
	for name := range doc {
		ext := strings.TrimPrefix(filepath.Ext(name), ".")
		if name != "[Content_Types].xml" && !strings.Contains(doc["[Content_Types].xml"], `Extension="`+ext+`"`) {
			t.Errorf("%s has no type", name)
		}
	}
}

func cleaning(t *testing.T, g *gateway) {
	const dirty = "Customer Name;Signed Up;Amount;City;Code\r\n" +
		" M\xfcller ;31.12.2025;\"1.200,50 \x80\";Berlin;007\r\n" +
		"Smith;05.01.2026;99,90;berlin;008\r\n" +
		";;;;\r\n" +
		"Smith;05.01.2026;99,90;berlin;008\r\n" +
		"Jones;n/a;(3,5);Berlin;009\r\n" +
		"Brown;1 Feb 2026;-;Paris;010\r\n" +
		"Green;17.03.2026;12,25;Berlin;011\r\n"
	d := g.open(t, "data-cleaner", map[string]string{"dirty.csv": dirty})
	if made := d.sh("python3 /skills/data-cleaner/scripts/clean.py dirty.csv --check", "cp1252, delimiter ';'", "can be read in two ways", "--dates dmy or mdy", "nothing written"); len(made) > 0 {
		t.Errorf("--check wrote %v", made)
	}
	made := d.sh("python3 /skills/data-cleaner/scripts/clean.py dirty.csv -o /mnt/data/clean.csv --dates dmy --merge city",
		"1  blank row removed", "1  duplicate row removed", "5 rows and 5 columns written")
	want := "customer_name,signed_up,amount,city,code\nMüller,2025-12-31,1200.5,Berlin,007\nSmith,2026-01-05,99.9,Berlin,008\nJones,,-3.5,Berlin,009\n" +
		"Brown,2026-02-01,,Paris,010\nGreen,2026-03-17,12.25,Berlin,011\n"
	if diff := cmp.Diff(want, made["clean.csv"]); diff != "" {
		t.Errorf("clean.csv (-want +got):\n%s", diff)
	}
	changes, err := csv.NewReader(strings.NewReader(made["clean.changes.csv"])).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range [][]string{
		{"2", "signed_up", "31.12.2025", "2025-12-31", "date in one form"}, {"6", "amount", "(3,5)", "-3.5", "number in one form"},
		{"5", "", "Smith | 2026-01-05 | 99.9 | Berlin | 008", "", "duplicate row removed"}, {"3", "city", "berlin", "Berlin", "spelling merged"},
	} {
		if !slices.ContainsFunc(changes, func(r []string) bool { return slices.Equal(r, row) }) {
			t.Errorf("the log of changes has no %q:\n%s", row, made["clean.changes.csv"])
		}
	}
}
