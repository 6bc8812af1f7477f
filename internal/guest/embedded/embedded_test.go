package embedded

import (
	"bytes"
	"strings"
	"testing"
)

// A checkout has no guest until make build has made one; both must be told apart.
func TestGuest(t *testing.T) {
	b, err := Guest()
	switch {
	case err != nil && !strings.Contains(err.Error(), "make build"):
		t.Errorf("the error does not say what to do: %v", err)
	case err == nil && !bytes.HasPrefix(b, []byte("\x7fELF")):
		t.Errorf("the guest is no Linux program; it begins with %q", b[:min(4, len(b))])
	}
}
