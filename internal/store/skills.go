package store

import (
	"context"
	"time"
)

// Library is the owner of the operator's skills, which every project may read and none may write. It cannot be a project's name.
const Library = "*library"

// Skill is a row of Skills.
type Skill struct {
	ID, Project string
	// Title is the name for people, "" for none. Name is that of the front matter, the same in all versions; Description is the default
	// version's.
	Title, Name, Description string
	// Default and Latest are numbers of versions, 0 where the skill has none. LatestID and LatestEpoch are the other names of Latest.
	Default, Latest int
	LatestID        string
	LatestEpoch     int64
	// SharedWith are the projects beside Project that may read it, sorted.
	SharedWith           []string
	CreatedAt, UpdatedAt time.Time
}

// SkillVersion is one version of a skill: immutable, with three names.
type SkillVersion struct {
	ID             string // skver_
	Project, Skill string
	Number         int   // from 1, rising, never given twice
	Epoch          int64 // microseconds of CreatedAt, rising
	// Name, Description are of the front matter; Folder is what was around the files, "" for none.
	Name, Description, Folder string
	// Body is the text for the search. It is written, and never read back.
	Body string
	// SHA256 is hex, and the key of the archive in package blob; Bytes is the archive's size, Unpacked that of the Files in it.
	SHA256          string
	Bytes, Unpacked int64
	Files           int
	CreatedAt       time.Time
}

// BlobOwner is the project under which package blob keeps the archive: apart from the files of clients, so that the bytes of one are never
// freed with the other.
func (v SkillVersion) BlobOwner() string { return "skills/" + v.Project }

// SkillPage is a part of a list of skills, newest first unless Ascending; with a Query the best match first.
type SkillPage struct {
	// After is the id of the last element of the page before. One that is gone is ErrNotFound, unless AfterTime has its CreatedAt.
	After     string
	AfterTime time.Time
	Limit     int // 1 to 10000
	Ascending bool
	// Query has words that the name, title, description or text must hold, or begin words of theirs; "" for all.
	Query string
	// Title filters by the title, "" for all.
	Title string
	// Library and Custom leave out all others than the operator's, or the operator's.
	Library, Custom bool
}

// SkillUsage is what a project has.
type SkillUsage struct {
	Skills, Versions int
	Bytes            int64 // of the archives
}

// Skills keeps skills and their versions. A project reads its own, those that are shared with it, and Library's; it writes its own.
type Skills interface {
	// Create adds a skill with its first version. Number, Epoch, Default and Latest are set here.
	Create(ctx context.Context, s Skill, v SkillVersion) (Skill, SkillVersion, error)
	// AddVersion adds a version to a skill of v.Project; the first one that a skill has is the default, later ones if makeDefault.
	AddVersion(ctx context.Context, v SkillVersion, makeDefault bool) (Skill, SkillVersion, error)
	Get(ctx context.Context, project, id string) (Skill, error)
	// OfLibrary finds a skill of the Library by its name.
	OfLibrary(ctx context.Context, name string) (Skill, error)
	List(ctx context.Context, project string, p SkillPage) (rows []Skill, more bool, err error)
	// Update changes Title, Default, SharedWith and UpdatedAt of a skill of project in a transaction: fn gets the row and edits it. A
	// Default that is no version of it is ErrNotFound. An error of fn is returned. fn must not use the store.
	Update(ctx context.Context, project, id string, fn func(*Skill) error) (Skill, error)
	// Delete removes a skill of project and its versions, which it returns so that their bytes can be freed.
	Delete(ctx context.Context, project, id string) ([]SkillVersion, error)
	// Version finds a version by its id, by its number, or by its epoch: the first of them that is not zero.
	Version(ctx context.Context, project, skill string, name VersionName) (SkillVersion, error)
	// Versions lists the versions of a skill; p.After is the id of one.
	Versions(ctx context.Context, project, skill string, p Page) (rows []SkillVersion, more bool, err error)
	// DeleteVersion removes a version of a skill of project. fn sees the skill as it was, sets UpdatedAt, and may refuse with an error.
	// Where the default goes, the latest that is left becomes it.
	DeleteVersion(ctx context.Context, project, skill, version string, fn func(*Skill) error) (Skill, error)
	// Usage counts what project owns.
	Usage(ctx context.Context, project string) (SkillUsage, error)
	// References counts the versions of a project with these bytes.
	References(ctx context.Context, project, sha256 string) (int, error)
	// AllVersions calls fn for every version of every project until it returns an error. fn may use the store.
	AllVersions(ctx context.Context, fn func(SkillVersion) error) error
}

// VersionName is one of the names of a version.
type VersionName struct {
	ID     string
	Number int
	Epoch  int64
}
