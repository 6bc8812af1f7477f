package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"
)

// SkillsRoot is where programs find the folders of skills, read-only.
const SkillsRoot = "/skills"

// Skill is a skill of a turn, unpacked on this machine.
type Skill struct {
	// ID and Version are the skill's id and the id of its version; Type is custom or anthropic, and Shown the version as the client knows
	// it.
	ID, Version, Type, Shown string
	// Name is its folder below SkillsRoot. Description is the author's, and so a stranger's words.
	Name, Description string
	// Dir is the folder on this machine. It stays until Release, and longer where Hold has been called: until the function that that
	// returned is.
	Dir     string
	Release func()
	Hold    func() (release func())
}

// Path is the skill's folder as programs see it.
func (s Skill) Path() string { return SkillsRoot + "/" + s.Name }

// maxSkillFile bounds what read_skill returns: as much as of any call's output.
const maxSkillFile = MaxForModel

// ReadSkill answers a call of read_skill: the file of a skill, or the list of a folder. failed says that it is an error for the model.
func ReadSkill(skills []Skill, arguments string) (text string, failed bool) {
	var in struct {
		Name string `json:"name"`
		Path string `json:"path"`
	}
	if err := json.Unmarshal([]byte(arguments), &in); err != nil {
		return `Error: the arguments must be a JSON object such as {"name":"` + SkillNames(skills) + `","path":"SKILL.md"}.`, true
	}
	for _, s := range skills {
		if s.Name != in.Name {
			continue
		}
		file := strings.TrimPrefix(path.Clean("/"+strings.TrimPrefix(in.Path, s.Path())), "/")
		if in.Path == "" {
			file = "SKILL.md"
		}
		text, err := readSkill(s, file)
		if err != nil {
			return "Error: " + err.Error(), true
		}
		return text, false
	}
	return fmt.Sprintf("Error: there is no skill %.100q; there are: %s.", in.Name, SkillNames(skills)), true
}

// SkillNames lists the names of skills.
func SkillNames(skills []Skill) string {
	names := make([]string, len(skills))
	for i, s := range skills {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

func readSkill(s Skill, file string) (string, error) {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return "", errors.New("the skill cannot be read now; try again")
	}
	defer root.Close()
	if file == "" {
		file = "."
	}
	f, err := root.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the skill %s has no file %.200q; path \"/\" lists its files", s.Name, file)
	}
	if err != nil {
		return "", fmt.Errorf("%.200q cannot be read", file)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("%.200q cannot be read", file)
	}
	if info.IsDir() {
		return listSkill(root, file)
	}
	data, err := io.ReadAll(io.LimitReader(f, 2*maxSkillFile))
	if err != nil {
		return "", fmt.Errorf("%.200q cannot be read", file)
	}
	if !utf8.Valid(data) && int64(len(data)) == info.Size() {
		return "", fmt.Errorf("%.200q is no text (%d bytes): use it from code at %s/%s", file, info.Size(), s.Path(), file)
	}
	return cutMiddle(strings.ToValidUTF8(string(data), "\uFFFD"), maxSkillFile), nil
}

// maxListed bounds the list of a folder.
const maxListed = 500

func listSkill(root *os.Root, dir string) (string, error) {
	var b strings.Builder
	n := 0
	err := fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if n++; n > maxListed {
			return fs.SkipAll
		}
		b.WriteString(name + "\n")
		return nil
	})
	if err != nil {
		return "", errors.New("the skill cannot be read now; try again")
	}
	if n > maxListed {
		b.WriteString("... and more\n")
	}
	return b.String(), nil
}
