package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/litellm"
	"github.com/lathe-gateway/lathe/internal/skill/catalog"
	"github.com/lathe-gateway/lathe/internal/store"
)

type importCmd struct {
	Litellm importLitellmCmd `cmd:"" name:"litellm" help:"Take over the skills of a LiteLLM proxy, with their ids, owners and files. Stop lathe serve before."`
}

type importLitellmCmd struct {
	configured
	Database string            `required:"" placeholder:"URL" help:"postgres://..., or a file: an SQLite copy of the table, or what pg_dump wrote as text."`
	Owner    map[string]string `placeholder:"OWNER=PROJECT" help:"Project of an owner in LiteLLM (a user's id, team:ID, org:ID or key:HASH). Others get a project called like them."`
	Project  string            `default:"default" help:"Project of rows without an owner (${default})."`
	DryRun   bool              `help:"Only say what would be done."`
}

// Run imports what is not there yet. It can be run again.
func (c *importLitellmCmd) Run(ctx context.Context, t *terminal) error {
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	var into *catalog.Catalog
	if !c.DryRun {
		a, err := wireSkills(ctx, cfg, slog.New(slog.NewTextHandler(t.err, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil {
			return err
		}
		defer a.close(ctx)
		into = a.skills
	}
	done, failed := 0, 0
	err = litellm.Read(ctx, c.Database, func(r litellm.Row) error {
		ok, err := c.take(ctx, t.out, into, r)
		if ok {
			done++
		} else if err == nil {
			failed++
		}
		return err
	})
	fmt.Fprintf(t.out, "%d imported, %d not\n", done, failed)
	if err == nil && failed > 0 {
		return exitCode(1)
	}
	return err
}

// take imports one row and says what became of it. The error ends the import.
func (c *importLitellmCmd) take(ctx context.Context, out io.Writer, into *catalog.Catalog, r litellm.Row) (bool, error) {
	project := c.project(r.Owner)
	p, notes, err := r.Package()
	if err != nil {
		fmt.Fprintf(out, "%s: not imported: %s\n", r.ID, err)
		return false, nil
	}
	if into != nil {
		_, _, err = into.Create(auth.WithPrincipal(ctx, auth.Principal{Name: "import", Project: project}), catalog.NewSkill{
			ID: r.ID, Title: title(r.Title), Package: p, CreatedAt: r.CreatedAt,
		})
	}
	switch {
	case errors.Is(err, store.ErrExists):
		fmt.Fprintf(out, "%s: there already\n", r.ID)
		return true, nil
	case err != nil:
		return false, fmt.Errorf("%s: %w", r.ID, err)
	}
	fmt.Fprintf(out, "%s: %s, %d files, project %s\n", r.ID, p.Meta.Name, len(p.Files), project)
	for _, n := range notes {
		fmt.Fprintf(out, "%s: note: %s\n", r.ID, n)
	}
	return true, nil
}

// project is that of an owner: the one that was said, else one called like it, as far as a project can be.
func (c *importLitellmCmd) project(owner string) string {
	if p, said := c.Owner[owner]; said {
		return p
	}
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_') {
			return r
		}
		return '-'
	}, owner), "-._")
	if name == "" {
		return c.Project
	}
	return name[:min(len(name), 64)]
}

// title makes one line of a display title, as long as one may be.
func title(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	return string(r[:min(len(r), 255)])
}
