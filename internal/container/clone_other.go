//go:build !linux

package container

import (
	"errors"
	"os/exec"
)

func cloneFile(src, dst string) error { return cloneTree(src, dst) }

func cloneTree(src, dst string) error {
	out, err := exec.Command("cp", "-a", "--", src, dst).CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}
