//go:build !linux

package bench

type addressSpaces struct{}

func (addressSpaces) has(int) bool { return false }
