package gvisor

import "path/filepath"

// CgroupDirs are the cgroups of a state directory in every hierarchy of this machine, those that exist and those that do not.
func CgroupDirs(state string) []string {
	resolved, err := filepath.EvalSymlinks(state)
	if err != nil {
		return nil
	}
	parent := newLayout(resolved).cgroup
	dirs, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", parent))
	return append(dirs, filepath.Join("/sys/fs/cgroup", parent))
}
