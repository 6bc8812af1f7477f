package skills

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
)

// dialect is how a request speaks.
type dialect int

const (
	openai dialect = iota
	anthropicGA
	anthropicBeta // with the beta header skills-2025-10-02
)

// betaName is the header value that keeps Anthropic's older shapes.
const betaName = "skills-2025-10-02"

func dialectOf(r *http.Request) dialect {
	switch {
	case !anthropic.Speaks(r):
		return openai
	case slices.Contains(anthropic.Betas(r), betaName):
		return anthropicBeta
	}
	return anthropicGA
}

func (d dialect) writeError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	if d == openai {
		oai.WriteError(w, r, log, err)
		return
	}
	anthropic.WriteError(w, r, log, err)
}

// limits are what the vendor takes.
func (d dialect) limits() skill.Limits {
	if d == openai {
		return skill.OpenAI
	}
	return skill.Anthropic
}

// extra is what all dialects have beyond their vendor.
type extra struct {
	// SharedWith is shown to the owner.
	SharedWith []string `json:"shared_with,omitempty"`
	// Warnings are what other readers of the package would refuse it for, and advice.
	Warnings []warning `json:"warnings,omitempty"`
}

type warning struct {
	Code    string   `json:"code"`
	Path    string   `json:"path,omitempty"`
	Line    int      `json:"line,omitempty"`
	Message string   `json:"message"`
	Mend    string   `json:"mend,omitempty"`
	Refused []string `json:"refused_by,omitempty"`
}

func warnings(r *skill.Report) []warning {
	var out []warning
	for _, f := range r.Findings {
		out = append(out, warning{Code: f.Code, Path: f.Path, Line: f.Line, Message: f.Message, Mend: f.Mend, Refused: f.By.Names()})
	}
	return out
}

// own says whether the skill is the caller's.
func own(r *http.Request, s store.Skill) bool {
	return s.Project == auth.FromContext(r.Context()).Project
}

// openaiSkill mirrors the skill object of wire/openai.md section 5.
type openaiSkill struct {
	ID             string `json:"id"`
	Object         string `json:"object"`
	Name           string `json:"name"`
	Description    string `json:"description"`
	DefaultVersion string `json:"default_version"`
	LatestVersion  string `json:"latest_version"`
	CreatedAt      int64  `json:"created_at"`
	extra
}

// gaSkill mirrors Skill of wire/anthropic.md 3.1.
type gaSkill struct {
	ID              string   `json:"id"`
	Type            string   `json:"type"`
	DisplayName     string   `json:"display_name"`
	LatestVersionID *string  `json:"latest_version_id"`
	Source          gaSource `json:"source"`
	CreatedAt       string   `json:"created_at"`
	UpdatedAt       string   `json:"updated_at"`
	extra
}

type gaSource struct {
	Type string `json:"type"`
}

// betaSkill mirrors Skill under the beta header.
type betaSkill struct {
	ID            string  `json:"id"`
	Type          string  `json:"type"`
	DisplayTitle  *string `json:"display_title"`
	LatestVersion *string `json:"latest_version"`
	Source        string  `json:"source"`
	CreatedAt     string  `json:"created_at"`
	UpdatedAt     string  `json:"updated_at"`
	extra
}

func (d dialect) skill(s store.Skill, own bool, warnings []warning) any {
	x := extra{Warnings: warnings}
	if own {
		x.SharedWith = s.SharedWith
	}
	switch d {
	case anthropicGA:
		title := s.Title
		if title == "" {
			title = s.Name
		}
		return gaSkill{
			ID: s.ID, Type: "skill", DisplayName: title, LatestVersionID: oai.Optional(s.LatestID), Source: gaSource{source(s)},
			CreatedAt: stamp(s.CreatedAt), UpdatedAt: stamp(s.UpdatedAt), extra: x,
		}
	case anthropicBeta:
		return betaSkill{
			ID: s.ID, Type: "skill", DisplayTitle: oai.Optional(s.Title), LatestVersion: oai.Optional(digits(s.LatestEpoch)), Source: source(s),
			CreatedAt: stamp(s.CreatedAt), UpdatedAt: stamp(s.UpdatedAt), extra: x,
		}
	}
	return openaiSkill{
		ID: s.ID, Object: "skill", Name: s.Name, Description: s.Description, DefaultVersion: digits(int64(s.Default)),
		LatestVersion: digits(int64(s.Latest)), CreatedAt: s.CreatedAt.Unix(), extra: x,
	}
}

// source says of the operator's skills what Anthropic says of its own: the server has them, and the client cannot change them.
func source(s store.Skill) string {
	if s.Project == store.Library {
		return "anthropic"
	}
	return "custom"
}

// stamp is RFC 3339 with microseconds, as recorded.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// digits is a version's number, "" for none.
func digits(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func positive(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n > 0
}

// openaiVersion mirrors skill.version of wire/openai.md section 5.
type openaiVersion struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	SkillID     string `json:"skill_id"`
	Version     string `json:"version"`
	Name        string `json:"name"`
	Description string `json:"description"`
	CreatedAt   int64  `json:"created_at"`
	extra
}

// gaVersion mirrors SkillVersion of wire/anthropic.md 3.1.
type gaVersion struct {
	ID          string `json:"id"`
	Type        string `json:"type"`
	SkillID     string `json:"skill_id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	CreatedAt   string `json:"created_at"`
	extra
}

// betaVersion mirrors SkillVersion under the beta header.
type betaVersion struct {
	Type        string `json:"type"`
	SkillID     string `json:"skill_id"`
	ID          string `json:"id"`
	Version     string `json:"version"`
	Directory   string `json:"directory"`
	Name        string `json:"name"`
	Description string `json:"description"`
	CreatedAt   string `json:"created_at"`
	extra
}

func (d dialect) version(v store.SkillVersion, warnings []warning) any {
	x := extra{Warnings: warnings}
	switch d {
	case anthropicGA:
		return gaVersion{
			ID: v.ID, Type: "skill_version", SkillID: v.Skill, Name: v.Name, Description: v.Description, CreatedAt: stamp(v.CreatedAt), extra: x,
		}
	case anthropicBeta:
		directory := v.Folder
		if directory == "" {
			directory = v.Name
		}
		return betaVersion{
			Type: "skill_version", SkillID: v.Skill, ID: v.ID, Version: digits(v.Epoch), Directory: directory, Name: v.Name,
			Description: v.Description, CreatedAt: stamp(v.CreatedAt), extra: x,
		}
	}
	return openaiVersion{
		ID: v.ID, Object: "skill.version", SkillID: v.Skill, Version: digits(int64(v.Number)), Name: v.Name, Description: v.Description,
		CreatedAt: v.CreatedAt.Unix(), extra: x,
	}
}

// deleted is Anthropic's answer to a DELETE.
type deleted struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// openaiDeletedVersion mirrors skill.version.deleted.
type openaiDeletedVersion struct {
	oai.Deleted
	Version string `json:"version"`
}

func (d dialect) deletedSkill(id string) any {
	if d == openai {
		return oai.Deleted{ID: id, Object: "skill.deleted", Deleted: true}
	}
	return deleted{ID: id, Type: "skill_deleted"}
}

func (d dialect) deletedVersion(v store.SkillVersion) any {
	switch d {
	case anthropicGA:
		return deleted{ID: v.ID, Type: "skill_version_deleted"}
	case anthropicBeta:
		return deleted{ID: digits(v.Epoch), Type: "skill_version_deleted"}
	}
	return openaiDeletedVersion{oai.Deleted{ID: v.ID, Object: "skill.version.deleted", Deleted: true}, digits(int64(v.Number))}
}

// cut shortens a client's word for a message.
func cut(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "..."
	}
	return s
}
