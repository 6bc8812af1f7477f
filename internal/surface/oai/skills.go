package oai

import (
	"encoding/base64"
	"encoding/json"

	"github.com/lathe-gateway/lathe/internal/turn"
)

const (
	// maxSkills is the most that a container may have (wire/openai.md 1.2).
	maxSkills = 200
	// maxInline is the most characters of an inline archive.
	maxInline = 70_254_592
)

// Skill is a skill as a request names it: {type: skill_reference, skill_id, version}, or with the type custom or anthropic as Messages has
// it; or {type: inline, name, description, source: {type: base64, media_type: application/zip, data}}.
type Skill struct {
	Type        string          `json:"type"`
	SkillID     string          `json:"skill_id"`
	Version     json.RawMessage `json:"version"` // a string, or a number
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Source      *struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

// Skills reads the skills of a request. path is their place in it; nil and null are none.
func Skills(path string, raw json.RawMessage) ([]turn.SkillRef, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var skills []Skill
	if err := json.Unmarshal(raw, &skills); err != nil {
		return nil, turn.Invalid(path, "%s must be an array of objects such as {\"type\": \"skill_reference\", \"skill_id\": \"skill_...\"}", path)
	}
	if len(skills) > maxSkills {
		return nil, turn.Invalid(path, "%s may name at most %d skills, got %d", path, maxSkills, len(skills))
	}
	out := make([]turn.SkillRef, 0, len(skills))
	for i, s := range skills {
		ref, err := s.ref(At(path, i))
		if err != nil {
			return nil, err
		}
		out = append(out, ref)
	}
	return out, nil
}

func (s Skill) ref(path string) (turn.SkillRef, error) {
	ref := turn.SkillRef{ID: s.SkillID, Param: path}
	switch s.Type {
	case "skill_reference", "custom":
	case "anthropic":
		ref.Type = s.Type
	case "inline":
		return s.inline(path)
	default:
		return ref, turn.Invalid(path+".type", "%s.type must be skill_reference, custom, anthropic or inline, got %q", path, s.Type)
	}
	if s.SkillID == "" {
		return ref, Missing(path + ".skill_id")
	}
	if len(s.Version) > 0 && string(s.Version) != "null" {
		if json.Unmarshal(s.Version, &ref.Version) != nil {
			var n json.Number
			if json.Unmarshal(s.Version, &n) != nil {
				return ref, turn.Invalid(path+".version", "%s.version must be a string or a number", path)
			}
			ref.Version = n.String()
		}
	}
	return ref, nil
}

func (s Skill) inline(path string) (turn.SkillRef, error) {
	src := s.Source
	switch {
	case src == nil:
		return turn.SkillRef{}, Missing(path + ".source")
	case src.Type != "base64" || src.MediaType != "application/zip":
		return turn.SkillRef{}, turn.Invalid(path+".source", "%s.source must have the type base64 and the media_type application/zip", path)
	case len(src.Data) > maxInline:
		return turn.SkillRef{}, &turn.Error{Kind: turn.KindTooLarge, Param: path + ".source.data", Message: "an inline skill may have 50 MB at most"}
	}
	data, err := base64.StdEncoding.DecodeString(src.Data)
	if err != nil || len(data) == 0 {
		return turn.SkillRef{}, turn.Invalid(path+".source.data", "%s.source.data is not base64", path)
	}
	return turn.SkillRef{Archive: data, Param: path}, nil
}

// AddSkills puts skills into the part of a request that runs here, which there may not be yet.
func AddSkills(h *turn.Hosted, skills []turn.SkillRef) *turn.Hosted {
	if len(skills) == 0 {
		return h
	}
	if h == nil {
		h = &turn.Hosted{}
	}
	h.Skills = append(h.Skills, skills...)
	return h
}
