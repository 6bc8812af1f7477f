package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/lathe-gateway/lathe/internal/store"
)

func (t skills) List(ctx context.Context, project string, p store.SkillPage) ([]store.Skill, bool, error) {
	q := query{columns: skillColumns, table: "skills", where: readable, args: []any{project, project}}
	q.filter("title", p.Title)
	if p.Library {
		q.where += " AND skills.project = '" + store.Library + "'"
	}
	if p.Custom {
		q.where += " AND skills.project <> '" + store.Library + "'"
	}
	if strings.TrimSpace(p.Query) != "" {
		return t.search(ctx, q, p)
	}
	rows, more, err := page(ctx, t.read, q, store.Page{After: p.After, Limit: p.Limit, Ascending: p.Ascending}, scanSkill)
	if errors.Is(err, store.ErrNotFound) && p.After != "" && !p.AfterTime.IsZero() {
		// The row of the cursor was deleted between two pages, as happens to whoever deletes what a list shows.
		cmp := "<"
		if p.Ascending {
			cmp = ">"
		}
		q.where += " AND created_at " + cmp + " ?"
		q.args = append(q.args, micros(p.AfterTime))
		return page(ctx, t.read, q, store.Page{Limit: p.Limit, Ascending: p.Ascending}, scanSkill)
	}
	return rows, more, err
}

// mostFound bounds a search: nobody pages through more.
const mostFound = 1000

// search finds skills that hold all words of the query, or, if there are none, any of them, the best first.
func (t skills) search(ctx context.Context, q query, p store.SkillPage) ([]store.Skill, bool, error) {
	words := wordsOf(p.Query)
	if len(words) == 0 {
		return nil, false, nil
	}
	for _, join := range []string{" AND ", " OR "} {
		rows, err := collect(ctx, t.read, scanSkill, "SELECT "+prefix("skills.", skillColumns)+" FROM skill_words JOIN skills ON skills.seq = skill_words.rowid"+
			" WHERE skill_words MATCH ? AND "+q.where+" ORDER BY bm25(skill_words, 10.0, 8.0, 5.0, 1.0), skills.seq DESC LIMIT ?",
			append(append([]any{strings.Join(words, join)}, q.args...), mostFound)...)
		if err != nil {
			return nil, false, err
		}
		if len(rows) == 0 {
			continue
		}
		if p.After != "" {
			at := slices.IndexFunc(rows, func(s store.Skill) bool { return s.ID == p.After })
			if at < 0 {
				return nil, false, store.ErrNotFound
			}
			rows = rows[at+1:]
		}
		limit := min(max(p.Limit, 1), len(rows))
		return rows[:limit], limit < len(rows), nil
	}
	return nil, false, nil
}

// wordsOf makes FTS5 terms of what a person typed: quoted, so that nothing in them is an operator, and matching the beginning of words.
func wordsOf(text string) []string {
	const most = 16
	var out []string
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }) {
		if len(out) < most {
			out = append(out, fmt.Sprintf(`"%s"*`, w))
		}
	}
	return out
}

// prefix puts the table's name in front of each column.
func prefix(table, columns string) string {
	return table + strings.ReplaceAll(columns, ", ", ", "+table)
}
