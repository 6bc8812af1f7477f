package guest

import (
	_ "embed"
	"strconv"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// language is how the kernel of a language is started. All kernels speak as kernel.py says.
type language struct {
	name   string // of its program, for messages
	source string
	path   func(*Config) string
	args   func(proto.Limits) []string
	limits func(proto.Limits) proto.Limits
	// functions says that programs can call functions of the client's.
	functions bool
}

//go:embed kernel.js
var nodeSource string

// nodeStub is to node what kernelStub is to Python.
const nodeStub = `const fs = require("fs");
const read = n => { const b = Buffer.alloc(n); for (let at = 0; at < n;) at += fs.readSync(3, b, at, n - at, null); return b; };
require("vm").runInThisContext(read(read(4).readUInt32BE()).toString(), "<lathe kernel>")(require);`

var languages = map[string]*language{
	proto.Python: {
		name: "python3", source: kernelSource, functions: true,
		path:   func(c *Config) string { return c.Python },
		args:   func(proto.Limits) []string { return []string{"-c", kernelStub} },
		limits: func(l proto.Limits) proto.Limits { return l },
	},
	proto.Node: {
		name: "node", source: nodeSource,
		path: func(c *Config) string { return c.Node },
		args: func(l proto.Limits) []string {
			args := []string{"-e", nodeStub}
			if l.Memory > 0 {
				// The rest is for what lies outside of the heap. Past this node ends with a message; past the cgroup's limit the sandbox ends.
				args = append([]string{"--max-old-space-size=" + strconv.FormatInt(max(l.Memory>>20*3/4, 16), 10)}, args...)
			}
			return args
		},
		// V8 reserves address space far beyond what it uses, 10 GiB for each WebAssembly memory.
		limits: func(l proto.Limits) proto.Limits { l.Memory = 0; return l },
	},
}
