package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"

	"github.com/lathe-gateway/lathe/internal/store"
)

type skills struct{ *Store }

// Skills implements store.Store.
func (s *Store) Skills() store.Skills { return skills{s} }

const skillColumns = "id, project, title, name, description, def, latest, latest_id, latest_epoch, shared, created_at, updated_at"

func scanSkill(s scanner) (store.Skill, error) {
	var k store.Skill
	var shared string
	var created, updated int64
	err := s.Scan(&k.ID, &k.Project, &k.Title, &k.Name, &k.Description, &k.Default, &k.Latest, &k.LatestID, &k.LatestEpoch, &shared, &created, &updated)
	if err != nil {
		return k, notFound(err)
	}
	k.CreatedAt, k.UpdatedAt = fromMicros(created), fromMicros(updated)
	return k, json.Unmarshal([]byte(shared), &k.SharedWith)
}

const versionColumns = "id, project, skill, number, epoch, name, description, folder, sha256, bytes, unpacked, files, created_at"

func scanVersion(s scanner) (store.SkillVersion, error) {
	var v store.SkillVersion
	var created int64
	err := s.Scan(&v.ID, &v.Project, &v.Skill, &v.Number, &v.Epoch, &v.Name, &v.Description, &v.Folder, &v.SHA256, &v.Bytes, &v.Unpacked,
		&v.Files, &created)
	v.CreatedAt = fromMicros(created)
	return v, notFound(err)
}

// readable is the condition for rows that a project may read; it takes the project twice. The table is called skills.
const readable = "(skills.project = ? OR skills.project = '" + store.Library + "' OR skills.id IN (SELECT skill FROM skill_shares WHERE project = ?))"

func (t skills) Create(ctx context.Context, s store.Skill, v store.SkillVersion) (store.Skill, store.SkillVersion, error) {
	err := t.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO skills ("+skillColumns+", last_number, last_epoch) VALUES (?, ?, ?, ?, ?, 0, 0, '', 0, '[]', ?, ?, 0, 0)",
			s.ID, s.Project, s.Title, s.Name, s.Description, micros(s.CreatedAt), micros(s.UpdatedAt))
		if err != nil {
			return constraint(err)
		}
		if err := share(ctx, tx, &s); err != nil {
			return err
		}
		v.Project, v.Skill = s.Project, s.ID
		s, v, err = addVersion(ctx, tx, v, true)
		return err
	})
	return s, v, err
}

func (t skills) AddVersion(ctx context.Context, v store.SkillVersion, makeDefault bool) (store.Skill, store.SkillVersion, error) {
	var s store.Skill
	err := t.inTx(ctx, func(tx *sql.Tx) (err error) {
		s, v, err = addVersion(ctx, tx, v, makeDefault)
		return err
	})
	return s, v, err
}

func addVersion(ctx context.Context, tx *sql.Tx, v store.SkillVersion, makeDefault bool) (store.Skill, store.SkillVersion, error) {
	var number int
	var epoch int64
	err := tx.QueryRowContext(ctx, "SELECT last_number, last_epoch FROM skills WHERE project = ? AND id = ?", v.Project, v.Skill).Scan(&number, &epoch)
	if err != nil {
		return store.Skill{}, v, notFound(err)
	}
	v.Number, v.Epoch = number+1, max(epoch+1, micros(v.CreatedAt))
	_, err = tx.ExecContext(ctx, "INSERT INTO skill_versions ("+versionColumns+", body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		v.ID, v.Project, v.Skill, v.Number, v.Epoch, v.Name, v.Description, v.Folder, v.SHA256, v.Bytes, v.Unpacked, v.Files, micros(v.CreatedAt), v.Body)
	if err != nil {
		return store.Skill{}, v, constraint(err)
	}
	_, err = tx.ExecContext(ctx, "UPDATE skills SET latest = ?, latest_id = ?, latest_epoch = ?, last_number = ?, last_epoch = ?, updated_at = ?,"+
		" def = CASE WHEN ? OR def = 0 THEN ? ELSE def END WHERE id = ?",
		v.Number, v.ID, v.Epoch, v.Number, v.Epoch, micros(v.CreatedAt), makeDefault, v.Number, v.Skill)
	if err != nil {
		return store.Skill{}, v, err
	}
	s, err := reindex(ctx, tx, v.Skill)
	v.Body = ""
	return s, v, err
}

// reindex brings what is copied from the default version up to date: the description and the words of the search.
func reindex(ctx context.Context, tx *sql.Tx, id string) (store.Skill, error) {
	_, err := tx.ExecContext(ctx, "UPDATE skills SET description = COALESCE((SELECT v.description FROM skill_versions v"+
		" WHERE v.skill = skills.id AND v.number = skills.def), '') WHERE id = ?", id)
	if err != nil {
		return store.Skill{}, err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM skill_words WHERE rowid = (SELECT seq FROM skills WHERE id = ?)", id); err != nil {
		return store.Skill{}, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO skill_words (rowid, name, title, description, body) SELECT s.seq, s.name, s.title, s.description,"+
		" COALESCE((SELECT v.body FROM skill_versions v WHERE v.skill = s.id AND v.number = s.def), '') FROM skills s WHERE s.id = ?", id)
	if err != nil {
		return store.Skill{}, err
	}
	return scanSkill(tx.QueryRowContext(ctx, "SELECT "+skillColumns+" FROM skills WHERE id = ?", id))
}

// share replaces who may read a skill.
func share(ctx context.Context, tx *sql.Tx, s *store.Skill) error {
	slices.Sort(s.SharedWith)
	s.SharedWith = slices.Compact(s.SharedWith)
	text, err := json.Marshal(append([]string{}, s.SharedWith...))
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE skills SET shared = ? WHERE id = ?", string(text), s.ID); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM skill_shares WHERE skill = ?", s.ID); err != nil {
		return err
	}
	for _, project := range s.SharedWith {
		if _, err := tx.ExecContext(ctx, "INSERT INTO skill_shares (skill, project) VALUES (?, ?)", s.ID, project); err != nil {
			return err
		}
	}
	return nil
}

func (t skills) Get(ctx context.Context, project, id string) (store.Skill, error) {
	return scanSkill(t.read.QueryRowContext(ctx, "SELECT "+skillColumns+" FROM skills WHERE id = ? AND "+readable, id, project, project))
}

func (t skills) OfLibrary(ctx context.Context, name string) (store.Skill, error) {
	return scanSkill(t.read.QueryRowContext(ctx, "SELECT "+skillColumns+" FROM skills WHERE project = ? AND name = ? ORDER BY seq LIMIT 1", store.Library, name))
}

func (t skills) Update(ctx context.Context, project, id string, fn func(*store.Skill) error) (store.Skill, error) {
	var s store.Skill
	err := t.inTx(ctx, func(tx *sql.Tx) (err error) {
		s, err = scanSkill(tx.QueryRowContext(ctx, "SELECT "+skillColumns+" FROM skills WHERE project = ? AND id = ?", project, id))
		if err != nil {
			return err
		}
		before := s.Default
		if err := fn(&s); err != nil {
			return err
		}
		if s.Default != before {
			var one int
			err := tx.QueryRowContext(ctx, "SELECT 1 FROM skill_versions WHERE skill = ? AND number = ?", id, s.Default).Scan(&one)
			if err != nil {
				return notFound(err)
			}
		}
		_, err = tx.ExecContext(ctx, "UPDATE skills SET title = ?, def = ?, updated_at = ? WHERE id = ?", s.Title, s.Default, micros(s.UpdatedAt), id)
		if err != nil {
			return err
		}
		if err := share(ctx, tx, &s); err != nil {
			return err
		}
		s, err = reindex(ctx, tx, id)
		return err
	})
	return s, err
}

func (t skills) Delete(ctx context.Context, project, id string) ([]store.SkillVersion, error) {
	var rows []store.SkillVersion
	err := t.inTx(ctx, func(tx *sql.Tx) (err error) {
		rows, err = collect(ctx, tx, scanVersion, "SELECT "+versionColumns+" FROM skill_versions WHERE project = ? AND skill = ? ORDER BY seq", project, id)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM skill_words WHERE rowid = (SELECT seq FROM skills WHERE project = ? AND id = ?)", project, id)
		if err != nil {
			return err
		}
		return changed(tx.ExecContext(ctx, "DELETE FROM skills WHERE project = ? AND id = ?", project, id))
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (t skills) Version(ctx context.Context, project, skill string, name store.VersionName) (store.SkillVersion, error) {
	column, value := "v.id", any(name.ID)
	switch {
	case name.ID != "":
	case name.Number != 0:
		column, value = "v.number", name.Number
	default:
		column, value = "v.epoch", name.Epoch
	}
	return scanVersion(t.read.QueryRowContext(ctx, "SELECT "+prefix("v.", versionColumns)+" FROM skill_versions v JOIN skills ON skills.id = v.skill"+
		" WHERE v.skill = ? AND "+column+" = ? AND "+readable, skill, value, project, project))
}

func (t skills) Versions(ctx context.Context, project, skill string, p store.Page) ([]store.SkillVersion, bool, error) {
	if _, err := t.Get(ctx, project, skill); err != nil {
		return nil, false, err
	}
	return page(ctx, t.read, query{columns: versionColumns, table: "skill_versions", where: "skill = ?", args: []any{skill}}, p, scanVersion)
}

func (t skills) DeleteVersion(ctx context.Context, project, skill, version string, fn func(*store.Skill) error) (store.Skill, error) {
	var s store.Skill
	err := t.inTx(ctx, func(tx *sql.Tx) (err error) {
		s, err = scanSkill(tx.QueryRowContext(ctx, "SELECT "+skillColumns+" FROM skills WHERE project = ? AND id = ?", project, skill))
		if err != nil {
			return err
		}
		if err := fn(&s); err != nil {
			return err
		}
		if err := changed(tx.ExecContext(ctx, "DELETE FROM skill_versions WHERE project = ? AND skill = ? AND id = ?", project, skill, version)); err != nil {
			return err
		}
		latest, err := scanVersion(tx.QueryRowContext(ctx, "SELECT "+versionColumns+" FROM skill_versions WHERE skill = ? ORDER BY number DESC LIMIT 1", skill))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE skills SET latest = ?, latest_id = ?, latest_epoch = ?, updated_at = ?, def = CASE WHEN"+
			" EXISTS (SELECT 1 FROM skill_versions v WHERE v.skill = skills.id AND v.number = skills.def) THEN def ELSE ? END WHERE id = ?",
			latest.Number, latest.ID, latest.Epoch, micros(s.UpdatedAt), latest.Number, skill)
		if err != nil {
			return err
		}
		s, err = reindex(ctx, tx, skill)
		return err
	})
	return s, err
}

func (t skills) Usage(ctx context.Context, project string) (store.SkillUsage, error) {
	var u store.SkillUsage
	err := t.read.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM skills WHERE project = ?), COUNT(*), COALESCE(SUM(bytes), 0)"+
		" FROM skill_versions WHERE project = ?", project, project).Scan(&u.Skills, &u.Versions, &u.Bytes)
	return u, err
}

func (t skills) References(ctx context.Context, project, sha256 string) (int, error) {
	var n int
	err := t.read.QueryRowContext(ctx, "SELECT COUNT(*) FROM skill_versions WHERE project = ? AND sha256 = ?", project, sha256).Scan(&n)
	return n, err
}

func (t skills) AllVersions(ctx context.Context, fn func(store.SkillVersion) error) error {
	return each(ctx, t.read, versionColumns, "skill_versions", scanVersion, fn)
}
