// Package store is the contract of what is kept in a database: containers, their checkpoints, files, steps, skills and what projects used. It does no I/O
// itself; sqlite implements it, and storetest is the suite that every implementation passes. The bytes of files are in package blob.
//
// Every row belongs to a project. A method that takes a project sees only that project's rows: another project's id answers as an
// unknown one, with ErrNotFound. Methods without one are for the process itself (expiry, reconciliation).
package store

import (
	"context"
	"errors"
	"time"
)

// ErrNotFound is returned, possibly wrapped, for an id that the project does not have.
var ErrNotFound = errors.New("store: not found")

// Store is one database.
type Store interface {
	Containers() Containers
	Checkpoints() Checkpoints
	Files() Files
	Steps() Steps
	Skills() Skills
	Usage() Usage
	// Ping says whether the store can be used, for /readyz.
	Ping(ctx context.Context) error
	Close() error
}

// Page is a part of a list, newest first unless Ascending.
type Page struct {
	// After is the id of the last element of the page before; one that does not exist is ErrNotFound.
	After     string
	Limit     int // 1 to 10000
	Ascending bool
	// Name filters containers by their name, "" for all; Purpose and Origin filter files likewise.
	Name, Purpose, Origin string
	// Made shows in a list of uploads also what programs made, in any container.
	Made bool
}

// Container is a row of Containers.
type Container struct {
	ID, Project, Name string
	// Session is metadata.session_id of the request that made it, "" for none. At most one container of a project that is neither
	// expired, deleted nor failed has it: an ended container gives its session up.
	Session string
	State   string // one of the State constants
	// MemoryLimit is in bytes. ExpireAfter counts from LastActive; 0 is never.
	MemoryLimit int64
	ExpireAfter time.Duration
	// Named says that a request has named it (by id or session).
	Named                 bool
	CreatedAt, LastActive time.Time

	// Owner is the process that may touch the container's sandbox and volume, "" for none. After Lease another one may take its place.
	Owner string
	Lease time.Time
	// Memory is what a container that hibernates goes on with.
	Memory Memory

	// Network is what programs may reach, in package container's encoding; nil is nothing. It may hold secrets: it belongs into no log.
	Network []byte
}

// Memory is the image of what programs had in memory. The zero value is none.
type Memory struct {
	ID string // mem_
	// Bytes is the size of the image as it was written; 0 while it is being written.
	Bytes int64
	// Packed and SHA256 (hex) are of the compressed copy in package blob; zero while there is none.
	Packed    int64
	SHA256    string
	CreatedAt time.Time
}

// The values of Container.State. Each is written before what it announces is done, so that whoever finds a row whose owner has died
// knows what may have happened.
const (
	// StateCreating: its files are still being put together, and no client knows of it.
	StateCreating = "creating"
	// StateIdle: there are files, and nothing else.
	StateIdle = "idle"
	// StateLive: it has a sandbox, or had one when its owner died.
	StateLive = "live"
	// StateHibernating: Memory is being written.
	StateHibernating = "hibernating"
	// StateHibernated: Memory is whole, and nothing has run since.
	StateHibernated = "hibernated"
	// StateResuming: a sandbox is being started from Memory; its programs may have run since.
	StateResuming = "resuming"
	// StateExpired: its time is over; the files are gone or going.
	StateExpired = "expired"
	// StateDeleted: a client has deleted it, and the rest is being removed.
	StateDeleted = "deleted"
	// StateFailed: it cannot be used any more.
	StateFailed = "failed"
)

// Ended says that the container will never run again.
func (c Container) Ended() bool {
	return c.State == StateExpired || c.State == StateDeleted || c.State == StateFailed
}

// Containers keeps containers. Deleted ones are gone; expired ones stay readable.
type Containers interface {
	// Create adds a row. A second one with its id, or with the session of one that has not ended, is ErrExists.
	Create(ctx context.Context, c Container) error
	Get(ctx context.Context, project, id string) (Container, error)
	// BySession returns the container of a session that has not ended.
	BySession(ctx context.Context, project, session string) (Container, error)
	// List shows neither containers that are being created nor those that are being deleted.
	List(ctx context.Context, project string, p Page) (rows []Container, more bool, err error)
	// Update changes State, LastActive, Named, ExpireAfter, Owner, Lease and Memory of one row in a transaction: fn gets the row and edits it. An error of
	// fn leaves the row as it was and is returned. fn must not use the store.
	Update(ctx context.Context, project, id string, fn func(*Container) error) (Container, error)
	// Delete removes the container and the rows of its files. Call Files.DeleteContainer first to learn whose bytes are freed.
	Delete(ctx context.Context, project, id string) error
	// All calls fn for every container of every project, oldest first, until it returns an error. fn may use the store.
	All(ctx context.Context, fn func(Container) error) error
	// Renew sets the Lease of all rows of an owner, and returns how many they are.
	Renew(ctx context.Context, owner string, lease time.Time) (int, error)
	// WithMemory returns the containers of all projects that have a Memory, the longest written one first.
	WithMemory(ctx context.Context) ([]Container, error)
}

// Checkpoint is a row of Checkpoints: a state of a container that a client gave a name.
type Checkpoint struct {
	ID, Project, Container, Name string
	// Memory says that it has more than files.
	Memory bool
	// Bytes is what it takes on disk, as it was made.
	Bytes     int64
	CreatedAt time.Time
}

// Checkpoints keeps checkpoints. Those of a container that is deleted go with it.
type Checkpoints interface {
	// Create adds a row. A second one of a container with its name is ErrExists, a container that the project does not have ErrNotFound.
	Create(ctx context.Context, c Checkpoint) error
	Get(ctx context.Context, project, container, id string) (Checkpoint, error)
	List(ctx context.Context, project, container string, p Page) (rows []Checkpoint, more bool, err error)
	Delete(ctx context.Context, project, container, id string) error
}

// ErrExists is returned for a second row with the same unique value.
var ErrExists = errors.New("store: exists")

// File is a row of Files: an upload (file_, no container) or a version of a container's file (cfile_).
type File struct {
	ID, Project string
	// Container is "" for uploads.
	Container string
	// Path is what a program sees (/mnt/data/...), "" for uploads; Name is the base name.
	Path, Name string
	Purpose    string
	Source     string // user or assistant
	// Origin is the id of the file that this one is a copy of, "" for none.
	Origin string
	Bytes  int64
	// SHA256 is hex, and the key of the bytes in package blob.
	SHA256    string
	CreatedAt time.Time
	// ExpiresAt is zero for never.
	ExpiresAt time.Time
	// Shown marks an image that a program displayed and did not save: it has no place in the volume.
	Shown bool
}

// Files keeps files. Rows are immutable: a changed file is a new row. Rows with equal CreatedAt are ordered as they were created.
type Files interface {
	// Create adds rows, all or none. A container that the project does not have is ErrNotFound.
	Create(ctx context.Context, f ...File) error
	Get(ctx context.Context, project, id string) (File, error)
	// List returns the uploads of a project (container ""), or all cfile_ rows of one container.
	List(ctx context.Context, project, container string, p Page) (rows []File, more bool, err error)
	// Latest returns the newest row for a path of a container.
	Latest(ctx context.Context, project, container, path string) (File, error)
	Delete(ctx context.Context, project, id string) error
	// DeleteContainer removes all rows of a container and returns them, so that their bytes can be freed.
	DeleteContainer(ctx context.Context, project, container string) ([]File, error)
	// Expired returns uploads whose ExpiresAt is before now.
	Expired(ctx context.Context, now time.Time) ([]File, error)
	// References counts the rows of a project with these bytes.
	References(ctx context.Context, project, sha256 string) (int, error)
	// Stored is how many bytes a project's files take, equal ones counted once, and how many rows there are.
	Stored(ctx context.Context, project string) (bytes int64, files int, err error)
	// All calls fn for every file of every project until it returns an error. fn may use the store.
	All(ctx context.Context, fn func(File) error) error
}

// Step is something that a protocol cannot carry and that is found again by an id which the client sends back: the hidden steps
// before a client's call (call_), or a hosted call with its outputs (ci_). Body is package turn's encoding.
type Step struct {
	ID, Project          string
	Body                 []byte
	CreatedAt, ExpiresAt time.Time
}

// Steps keeps steps.
type Steps interface {
	Put(ctx context.Context, s ...Step) error // replaces
	// Get returns those of ids that exist and are not expired.
	Get(ctx context.Context, project string, ids ...string) (map[string]Step, error)
	Expire(ctx context.Context, now time.Time) (int, error)
}

// Usage keeps for how long the code of a project ran, by days in UTC.
type Usage interface {
	// Add adds d to the day of at. It keeps microseconds.
	Add(ctx context.Context, project string, at time.Time, d time.Duration) error
	// Used is the sum of the day of at, 0 if there is none.
	Used(ctx context.Context, project string, at time.Time) (time.Duration, error)
	// Expire removes the days before that of before.
	Expire(ctx context.Context, before time.Time) (int, error)
}
