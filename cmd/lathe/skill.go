package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lathe-gateway/lathe/internal/skill"
)

type skillCmd struct {
	New      skillNewCmd      `cmd:"" help:"Make the folder of a new skill, ready to be filled."`
	Validate skillValidateCmd `cmd:"" help:"Say all that is wrong with a skill, each finding with its line and the mend."`
	Pack     skillPackCmd     `cmd:"" help:"Make an archive of a skill's folder, without what tools left in it."`
	Push     skillPushCmd     `cmd:"" help:"Upload a skill to a gateway: a new one, or a new version of the one with its name."`
	Pull     skillPullCmd     `cmd:"" help:"Download a skill from a gateway into a folder."`
	List     skillListCmd     `cmd:"" help:"List the skills of a gateway."`
	Show     skillShowCmd     `cmd:"" help:"Show a skill of a gateway and its versions."`
	Search   skillSearchCmd   `cmd:"" help:"Search the skills of a gateway for words in name, description and text."`
	Rm       skillRmCmd       `cmd:"" help:"Delete a skill of a gateway, or one version."`
}

type skillNewCmd struct {
	Dir string `arg:"" placeholder:"DIR" help:"The folder, called as the skill: lower-case letters, digits and hyphens."`
}

const skillTemplate = `---
name: %s
description: What it does, in one sentence. Use it when ... (say what a user asks for, in their words).
license: Apache-2.0
---

# %s

1. Look at what the user gave: %[3]sls "$INPUT_DIR"%[3]s.
2. Run %[3]spython3 /skills/%[1]s/scripts/example.py FILE%[3]s and read what it prints.
3. Say what was found, and name the files that were made.
`

const scriptTemplate = `#!/usr/bin/env python3
"""Says how many lines a file has. Replace it with what the skill needs."""
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    print(sum(1 for _ in f), "lines")
`

// Run makes the folder.
func (c *skillNewCmd) Run(t *terminal) error {
	name := filepath.Base(filepath.Clean(c.Dir))
	if skill.Slug(name) != name {
		return fmt.Errorf("%q is not a skill's name: use lower-case letters, digits and single hyphens, at most %d, such as %q",
			name, skill.MaxName, firstNonEmpty(skill.Slug(name), "my-skill"))
	}
	if _, err := os.Stat(c.Dir); err == nil {
		return fmt.Errorf("%s is there already: choose another name", c.Dir)
	}
	if err := os.MkdirAll(filepath.Join(c.Dir, "scripts"), 0o755); err != nil { //nolint:gosec // a folder for people, as mkdir makes it
		return err
	}
	title := strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "-", " ")
	text := fmt.Sprintf(skillTemplate, name, title, "`")
	if err := os.WriteFile(filepath.Join(c.Dir, skill.Manifest), []byte(text), 0o644); err != nil { //nolint:gosec // as above
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "scripts", "example.py"), []byte(scriptTemplate), 0o755); err != nil { //nolint:gosec // a script
		return err
	}
	fmt.Fprintf(t.out, "%s\nNow write what it does into %s, then: lathe skill validate --strict %s\n", c.Dir, filepath.Join(c.Dir, skill.Manifest), c.Dir)
	return nil
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// readSkill reads a folder, an archive, or the SKILL.md of a folder.
func readSkill(path string) (*skill.Package, *skill.Report, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if info.Mode().IsRegular() && filepath.Base(path) == skill.Manifest {
		path = filepath.Dir(path)
	} else if info.Mode().IsRegular() {
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		return skill.ReadZip(f, info.Size(), skill.Limits{})
	}
	return skill.ReadFolder(path, skill.Limits{})
}

type skillValidateCmd struct {
	Strict bool     `help:"Also fail for what agentskills.io, Anthropic or OpenAI refuse, not only for what cannot be loaded."`
	Paths  []string `arg:"" name:"path" help:"Folders or archives."`
}

// Run judges each path. The exit code is 1 if one of them fails.
func (c *skillValidateCmd) Run(t *terminal) error {
	failed := false
	for _, path := range c.Paths {
		p, report, err := readSkill(path)
		if err != nil {
			return err
		}
		for _, f := range report.Findings {
			fmt.Fprintf(t.out, "%s: %s\n", path, f)
		}
		if report.More > 0 {
			fmt.Fprintf(t.out, "%s: and %d more\n", path, report.More)
		}
		switch refusers := report.RefusedBy().Names(); {
		case p == nil:
			failed = true
			fmt.Fprintf(t.out, "%s: cannot be loaded\n", path)
		case len(refusers) > 0:
			failed = failed || c.Strict
			fmt.Fprintf(t.out, "%s: can be loaded as %s; refused by %s\n", path, p.Meta.Name, strings.Join(refusers, ", "))
		default:
			fmt.Fprintf(t.out, "%s: valid, named %s\n", path, p.Meta.Name)
		}
	}
	if failed {
		return exitCode(1)
	}
	return nil
}

type skillPackCmd struct {
	Dir string `arg:"" placeholder:"DIR" help:"The skill's folder."`
	Out string `short:"o" placeholder:"FILE" help:"The archive to make. Default: NAME.zip in this folder."`
}

// Run writes the archive.
func (c *skillPackCmd) Run(t *terminal) error {
	p, err := packable(c.Dir, t)
	if err != nil {
		return err
	}
	out := c.Out
	if out == "" {
		out = p.Meta.Name + ".zip"
	}
	var b bytes.Buffer
	if err := p.WriteZip(&b); err != nil {
		return err
	}
	f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // a file for people
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: remove it, or name another file with -o", out)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s: %d files, %d bytes\n", out, len(p.Files), b.Len())
	return nil
}

// packable reads a skill and leaves out what tools made, saying so.
func packable(path string, t *terminal) (*skill.Package, error) {
	p, report, err := readSkill(path)
	if err != nil {
		return nil, err
	}
	for _, f := range report.Findings {
		fmt.Fprintf(t.err, "%s: %s\n", path, f)
	}
	if p == nil {
		return nil, fmt.Errorf("%s cannot be loaded: mend what is said above", path)
	}
	kept := p.Files[:0:0]
	for _, f := range p.Files {
		if skill.Generated(f.Path) {
			fmt.Fprintf(t.err, "%s: %s: left out\n", path, f.Path)
			continue
		}
		kept = append(kept, f)
	}
	p.Files = kept
	return p, nil
}
