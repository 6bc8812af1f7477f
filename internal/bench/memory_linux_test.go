package bench

import (
	"os"
	"os/exec"
	"testing"
)

// Processes that share an address space count once, others each.
func TestAddressSpaces(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: kcmp asks for the right to trace")
	}
	start := func() int {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd.Process.Pid
	}
	var spaces addressSpaces
	one, two := start(), start()
	if spaces.has(one) || spaces.has(two) {
		t.Error("two programs share an address space")
	}
	if !spaces.has(one) || !spaces.has(two) {
		t.Error("an address space that was seen is taken for a new one")
	}
}
