package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lathe-gateway/lathe/internal/egress"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// connectTime bounds how long a sandbox may take to get its network: it answers in milliseconds.
const connectTime = 20 * time.Second

// policy is what store.Container.Network holds: what a container may reach, fixed when it is made. No domains are all of the operator's.
type policy struct {
	Domains []string            `json:"domains,omitempty"`
	Secrets []turn.DomainSecret `json:"secrets,omitempty"`
}

// network makes the policy of a new container of what a client says; nil is none. param is the path of network_policy.
func (m *Manager) network(param string, n *turn.Network) ([]byte, error) {
	switch {
	case n != nil && n.Disabled, n == nil && m.Egress == nil:
		return nil, nil
	case m.Egress == nil:
		return nil, turn.Unsupported(param, "network access is off on this server (its operator's key sandbox.network); leave %s out", param)
	}
	var p policy
	if n != nil {
		p = policy{Domains: slices.Sorted(slices.Values(n.Domains)), Secrets: n.Secrets}
		if e, ok := errors.AsType[*egress.PolicyError](m.Egress.Check(egress.Policy{Domains: n.Domains, Secrets: n.Secrets})); ok {
			return nil, turn.Invalid(param+"."+e.Field, "%s", e.Message)
		}
	}
	return json.Marshal(p)
}

// policyOf is the policy of a container as the operator allows it now: what is not allowed any more is left out. ok is false where it has
// no network.
func (m *Manager) policyOf(row store.Container) (p egress.Policy, ok bool) {
	var kept policy
	if m.Egress == nil || len(row.Network) == 0 || json.Unmarshal(row.Network, &kept) != nil {
		return p, false
	}
	p.Domains = slices.DeleteFunc(slices.Clone(kept.Domains), func(d string) bool {
		return m.Egress.Check(egress.Policy{Domains: []string{d}}) != nil
	})
	if len(kept.Domains) > 0 && len(p.Domains) == 0 {
		return p, false
	}
	p.Secrets = slices.DeleteFunc(slices.Clone(kept.Secrets), func(s turn.DomainSecret) bool {
		return m.Egress.Check(egress.Policy{Domains: p.Domains, Secrets: []turn.DomainSecret{s}}) != nil
	})
	return p, true
}

// Reaches are the domains that programs of a container may reach, none without a network.
func (m *Manager) Reaches(row store.Container) []string {
	p, ok := m.policyOf(row)
	switch {
	case !ok:
		return nil
	case len(p.Domains) == 0:
		return m.Egress.Domains()
	}
	return p.Domains
}

// Reach implements tool.Workspaces.
func (m *Manager) Reach(ctx context.Context, h *turn.Hosted) []string {
	project, err := projectOf(ctx)
	if err != nil || m.Egress == nil {
		return nil
	}
	if id := m.find(ctx, project, h); id != "" {
		if row, err := m.lookup(ctx, project, id); err == nil && m.sameNetwork(row, h) {
			return m.Reaches(row)
		}
	}
	network, err := m.network("container.network_policy", h.Network)
	if err != nil {
		return nil
	}
	return m.Reaches(store.Container{Network: network})
}

// sameNetwork says whether a container has the policy that a request wants, if it wants one: it is fixed when the container is made.
func (m *Manager) sameNetwork(row store.Container, h *turn.Hosted) bool {
	if h.Network == nil {
		return true
	}
	want, err := m.network("container.network_policy", h.Network)
	return err == nil && bytes.Equal(want, row.Network)
}

func (e *entry) sameNetwork(h *turn.Hosted) bool {
	e.mu.Lock()
	row := e.row
	e.mu.Unlock()
	return e.m.sameNetwork(row, h)
}

// errOtherNetwork refuses a session's container with another policy.
func errOtherNetwork(id string) error {
	return turn.Invalid("container.network_policy", "the container %s of this session was made with another network_policy, which cannot be "+
		"changed: send the same, or none, or begin another session", id)
}

// online connects a sandbox if its container has a network and it is not connected yet. The caller holds entry.calls.
func (e *entry) online(ctx context.Context, l *live) error {
	e.mu.Lock()
	row, done := e.row, l.asked
	l.asked = true
	e.mu.Unlock()
	if done {
		return nil
	}
	p, ok := e.m.policyOf(row)
	if !ok {
		return nil
	}
	gate, err := e.m.Egress.Open(e.key.id, p)
	if err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrNotStarted, err)
	}
	e.mu.Lock()
	l.gate = gate
	e.mu.Unlock()
	// A client that leaves now must not cost the sandbox.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTime)
	defer cancel()
	if err := l.Connect(ctx, gate.Network()); err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrNotStarted, err)
	}
	return nil
}

// offline ends what connections are left of a sandbox that has ended.
func (e *entry) offline(l *live) {
	e.mu.Lock()
	gate := l.gate
	e.mu.Unlock()
	if gate != nil {
		gate.Close()
	}
}
