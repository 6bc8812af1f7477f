package config

import (
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"
)

func (d *decoder) projectLimits(l *ProjectLimits) []field {
	return []field{
		{"live", d.integer(&l.Live, 0, 100_000)},
		{"memory", unit(d, &l.Memory, parseSize, 0, 1<<44)},
		{"stored", unit(d, &l.Stored, parseSize, 0, 1<<50)},
		{"files", d.integer(&l.Files, 0, 1_000_000_000)},
		{"time_per_day", unit(d, &l.TimePerDay, parseDuration, 0, Duration(100_000*time.Hour))},
	}
}

// project is one of the file's before the rest of it is known.
type project struct {
	at     ast.Node // its name
	path   string
	limits ast.Node
}

func (d *decoder) projects(n ast.Node, path string, c *Config) {
	d.list(n, path, func(n ast.Node, path string) {
		var p Project
		late := project{path: path}
		present := d.mapping(n, path, []field{
			{"name", d.text(&p.Name, checkName)},
			{"image", d.text(&p.Image, nil)},
			{"limits", func(n ast.Node, _ string) { late.limits = n }},
		})
		d.require(n, path, present, "name")
		for i, other := range c.Projects {
			if p.Name != "" && p.Name == other.Name {
				d.fault(present["name"], path+".name", "%q is already the name of projects[%d]: write both together", p.Name, i)
			}
		}
		late.at = present["name"]
		c.Projects = append(c.Projects, p)
		d.late = append(d.late, late)
	})
}

// complete gives projects what they do not say themselves, which can stand anywhere in the file, and holds their names against the keys.
func (d *decoder) complete(c *Config) {
	for i, late := range d.late {
		p := &c.Projects[i]
		p.Limits = c.Sandbox.PerProject
		if late.limits != nil {
			d.mapping(late.limits, late.path+".limits", d.projectLimits(&p.Limits))
		}
		known := p.Name == "default" || slices.ContainsFunc(c.Keys, func(k Key) bool { return k.Project == p.Name })
		if late.at != nil && !known {
			d.fault(late.at, late.path+".name", "%q is the project of no key: write a name that stands in keys, or \"default\"", p.Name)
		}
	}
	if s := &c.Sandbox; s.PoolMax < s.Pool {
		s.PoolMax = s.Pool
	}
}
