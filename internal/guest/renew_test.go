package guest

import (
	"errors"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// renewed sends a Renew and returns what came of it.
func (h *host) renewed(r proto.RenewCall) answer {
	h.t.Helper()
	h.last++
	h.send(proto.Renew, h.last, r)
	return h.finish(h.last)
}

func TestRenewEverything(t *testing.T) {
	var told []proto.RenewCall
	fail := false
	h := serve(t, Config{Python: needPython(t), Renew: func(r proto.RenewCall) error {
		told = append(told, r)
		if fail {
			return errors.New("no room")
		}
		return nil
	}})
	t.Run("without a kernel", func(t *testing.T) {
		if a := h.renewed(proto.RenewCall{Fresh: true, TmpSize: 7}); a.result.Status != proto.OK {
			t.Errorf("%+v", a)
		}
		if len(told) != 1 || told[0].TmpSize != 7 || !told[0].Fresh {
			t.Errorf("the guest was told %+v", told)
		}
	})
	t.Run("every session", func(t *testing.T) {
		const seed, same = "import random\nrandom.seed(7)\nwant = random.random()\nrandom.seed(7)", "random.random() == want"
		for _, name := range []string{"", "one", "two"} {
			h.finish(h.start(proto.StartCall{Kind: proto.Python, Session: name, Code: seed}))
		}
		if a := h.renewed(proto.RenewCall{Fresh: true}); a.result.Status != proto.OK {
			t.Errorf("%+v", a)
		}
		for _, name := range []string{"", "one", "two"} {
			a := h.finish(h.start(proto.StartCall{Kind: proto.Python, Session: name, Code: same}))
			if a.output[proto.Value] != "False" {
				t.Errorf("session %q still has its seed: %+v", name, a)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		fail = true
		if a := h.renewed(proto.RenewCall{}); !strings.Contains(a.refused, "no room") {
			t.Errorf("%+v", a)
		}
	})
}
