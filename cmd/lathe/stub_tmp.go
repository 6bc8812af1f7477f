package main
import "context"
type runCmd struct{}
func (runCmd) Run(ctx context.Context) error { return nil }
type doctorCmd struct{}
func (doctorCmd) Run(ctx context.Context) error { return nil }
type benchCmd struct{}
func (benchCmd) Run(ctx context.Context) error { return nil }
type demoCmd struct{}
func (demoCmd) Run(ctx context.Context) error { return nil }
