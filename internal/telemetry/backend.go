package telemetry

import (
	"context"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// Backend counts the sandboxes of next and the time that code runs in them.
func (m *Metrics) Backend(next sandbox.Backend) sandbox.Backend {
	return &backend{Backend: next, metrics: m}
}

type backend struct {
	sandbox.Backend
	metrics *Metrics
}

var _ sandbox.Backend = (*backend)(nil)

// Start is next's.
func (b *backend) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := b.Backend.Start(ctx, spec)
	return b.count(sb, err)
}

// Restore is next's.
func (b *backend) Restore(ctx context.Context, spec sandbox.Spec, dir string) (sandbox.Sandbox, error) {
	sb, err := b.Backend.Restore(ctx, spec, dir)
	return b.count(sb, err)
}

func (b *backend) count(sb sandbox.Sandbox, err error) (sandbox.Sandbox, error) {
	if err != nil {
		b.metrics.sandboxStarts.WithLabelValues("error").Inc()
		return nil, err
	}
	b.metrics.sandboxStarts.WithLabelValues("ok").Inc()
	b.metrics.sandboxLive.Inc()
	go func() { // ends with the sandbox, whose owner closes it
		<-sb.Done()
		b.metrics.sandboxLive.Dec()
	}()
	return &counted{Sandbox: sb, metrics: b.metrics}, nil
}

type counted struct {
	sandbox.Sandbox
	metrics *Metrics
}

// Exec is next's.
func (c *counted) Exec(ctx context.Context, call sandbox.Call, sink func(sandbox.Output)) (*sandbox.Result, error) {
	start := time.Now()
	result, err := c.Sandbox.Exec(ctx, call, sink)
	if result != nil {
		c.metrics.sandboxSeconds.Add(result.Duration.Seconds())
	} else {
		c.metrics.sandboxSeconds.Add(time.Since(start).Seconds())
	}
	return result, err
}
