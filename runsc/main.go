// Command runsc is gVisor's own, with nothing changed but one step of its build put back: the seccomp filters of the sandbox's kernel are
// compiled when runsc is built and not each time a sandbox starts, which takes 25 to 35 ms of its start or restore. Bazel does that for
// gVisor's releases; go build leaves a list of such filters empty, and this fills it.
package main

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sync"
	_ "gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/cli/maincli"
)

// filters has what ./filters has written, by gVisor's description of a configuration. A kernel of another configuration, or a runsc that
// was built without, compiles its own.
var filters = map[string]precompiledseccomp.Program{}

//go:linkname programs gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var programs map[string]precompiledseccomp.Program

// once is what gVisor fills programs in, from its empty list.
//
//go:linkname once gvisor.dev/gvisor/runsc/boot/filter.registerPrecompiledProgramsOnce
var once sync.Once

func main() {
	once.Do(func() { programs = filters })
	maincli.Main()
}
