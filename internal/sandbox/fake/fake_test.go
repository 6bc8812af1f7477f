package fake

import (
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandbox.Backend { return New(Config{Dir: t.TempDir()}) })
}

func TestSuiteWithoutIPython(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandbox.Backend { return New(Config{Dir: t.TempDir(), Plain: true}) })
}
