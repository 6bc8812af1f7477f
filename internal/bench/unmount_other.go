//go:build !linux

package bench

func unmountNetns(string) {}
