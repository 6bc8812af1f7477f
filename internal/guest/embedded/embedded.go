// Package embedded carries the guest program that package guest and cmd/lathe-guest are built into, for backends to put into their
// sandboxes. make build compiles it, statically, to bin/lathe-guest in this folder, before lathe itself; a plain go build has none.
package embedded

import (
	"embed"
	"errors"
	"io/fs"
)

//go:embed all:bin
var files embed.FS

// Guest returns the guest program for the architecture that lathe was built for. The slice is the caller's.
func Guest() ([]byte, error) {
	b, err := files.ReadFile("bin/lathe-guest")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("this lathe was built without its guest; build it with make build")
	}
	return b, err
}
