package guest

import (
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// path is the search path of programs where Config.Env has none.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.MapPath == nil {
		c.MapPath = func(p string) string { return p }
	}
	c.Tmp = firstDir(c.Tmp, "/tmp", "/")
	c.Home = firstDir(c.Home, c.Tmp)
	c.WorkDir = firstDir(c.WorkDir, c.Home)
	search := path
	for _, kv := range c.Env {
		if p, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = p
		}
	}
	if c.Python == "" {
		c.Python = find(search, "python3", "python")
	}
	if c.Shell == "" {
		c.Shell = find(search, "bash", "sh")
	}
	if c.Node == "" {
		c.Node = find(search, "node", "nodejs")
	}
}

// path translates a directory of a call; "" is "".
func (c *Config) path(p string) string {
	if p == "" {
		return ""
	}
	return c.MapPath(p)
}

// callEnv is the environment that a call adds. Names that no program could have set are left out.
func (c *Config) callEnv(env map[string]string) map[string]string {
	out := make(map[string]string, len(env))
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			continue
		}
		out[k] = c.MapPath(v)
	}
	return out
}

// environ is the whole environment of a program: the base, what every program gets, and add.
func (c *Config) environ(limits proto.Limits, add map[string]string) []string {
	env := map[string]string{"PATH": path, "LANG": "C.UTF-8"}
	for _, kv := range c.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			env[k] = v
		}
	}
	env["PATH"] = c.Home + "/.local/bin:" + env["PATH"]
	maps.Copy(env, map[string]string{
		"HOME": c.Home, "TMPDIR": c.Tmp, "USER": "user", "LOGNAME": "user", "SHELL": c.Shell,
		"PYTHONUNBUFFERED": "1",
		// Programs that draw without the kernel get files, not a display. In the kernel, hooks show figures.
		"MPLBACKEND": "Agg",
		// Each malloc arena reserves 64 MiB of the address space that RLIMIT_AS counts.
		"MALLOC_ARENA_MAX": "2",
	})
	maps.Copy(env, threadEnv(limits))
	maps.Copy(env, add)
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	return out
}

// threadEnv is how numeric libraries are told how many threads to start. Most read it when they are loaded.
func threadEnv(limits proto.Limits) map[string]string {
	env := map[string]string{}
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"} {
		env[name] = strconv.Itoa(max(1, limits.Threads))
	}
	return env
}

func firstDir(dirs ...string) string {
	for _, d := range dirs {
		if fi, err := os.Stat(d); d != "" && err == nil && fi.IsDir() {
			return d
		}
	}
	return "/"
}

func find(search string, names ...string) string {
	for _, name := range names {
		for _, dir := range filepath.SplitList(search) {
			p := filepath.Join(dir, name)
			if fi, err := os.Stat(p); err == nil && !fi.IsDir() && fi.Mode()&0o111 != 0 {
				return p
			}
		}
	}
	return ""
}
