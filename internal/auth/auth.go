// Package auth says who calls: it turns an API key into a Principal and carries it in the context. Everything may import it.
package auth

import "context"

// Principal is who calls. Everything stored belongs to its Project.
type Principal struct {
	Name, Project string
	Admin         bool
}

type contextKey struct{}

// WithPrincipal returns ctx with p in it.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// FromContext returns the principal of ctx. Without one it is the zero Principal, which owns nothing.
func FromContext(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}
