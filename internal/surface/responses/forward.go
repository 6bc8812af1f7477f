package responses

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/wire/peek"
)

// clientTools are the types of tools that clients run themselves. All others would be run by the vendor; shell, which may be either, counts
// among those.
var clientTools = []string{"function", "custom", "local_shell", "apply_patch", "computer", "computer_use", "computer_use_preview", "namespace"}

// forward passes a request on untouched where its model speaks this protocol and no part of it is ours: where no hosted tool is asked for
// and nothing is named that only we know, or where hosted tools are left to the provider. It says whether it did.
func (h *handler) forward(w http.ResponseWriter, r *http.Request, body []byte) (bool, error) {
	if h.Models == nil {
		return false, nil
	}
	peeked, err := peek.Request(body)
	if err != nil || peeked.Model == "" {
		return false, nil //nolint:nilerr // the strict reader says better what is wrong
	}
	m, err := h.Models.Model(peeked.Model)
	if err != nil {
		return false, nil //nolint:nilerr // the turn ends with the same error, if the rest of the request is right
	}
	if peeked.Has("code_interpreter") {
		if err := m.HostedElsewhere(protocol); err != nil {
			return true, err
		}
	}
	f, ok := m.Provider.(provider.Forwarder)
	if !ok || f.Protocol() != protocol {
		return false, nil
	}
	hosted := slices.ContainsFunc(peeked.Tools, func(kind string) bool { return !slices.Contains(clientTools, kind) })
	if hosted && !m.Native || !hosted && namesOurs(body) {
		return false, nil
	}
	return true, f.Forward(r.Context(), w, provider.Forward{Path: "/responses", Header: r.Header, Body: body})
}

// ours begin the ids of what only we know: uploads, containers and their files, calls that ran here, calls behind which steps are stored,
// and the items of answers that were made here, which the model's server would look for in vain. Responses are not among them: none is kept.
var ours = []string{`"file_`, `"cntr_`, `"cfile_`, `"ci_`, `"call_h`, `"msg_`, `"rs_`, `"fc_`}

// namesOurs says that a request names something of ours. An id stands in the body as a JSON string of its own: a prefix and 32 hex digits.
// Servers that mint ids of the same form only lose that their bytes are untouched.
func namesOurs(body []byte) bool {
	for _, prefix := range ours {
		rest := body
		for {
			i := bytes.Index(rest, []byte(prefix))
			if i < 0 {
				break
			}
			rest = rest[i+len(prefix):]
			if len(rest) > 32 && rest[32] == '"' && strings.Trim(string(rest[:32]), "0123456789abcdef") == "" {
				return true
			}
		}
	}
	return false
}
