package messages

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/provider"
)

// Paths below the base URL of a server.
const (
	messagesPath = "/v1/messages"
	countPath    = messagesPath + "/count_tokens"
)

// forward passes a request on untouched where its model's server speaks this protocol and no part of it is ours: where no code is to be
// run and nothing is named that only we know, or where hosted tools are left to the provider. It says whether it did.
func (h *handler) forward(w http.ResponseWriter, r *http.Request, c *call, path string) (bool, error) {
	hosted := slices.ContainsFunc(c.peeked.Tools, isCodeExecution) && path == messagesPath
	if hosted {
		if err := c.model.HostedElsewhere(protocol); err != nil {
			return true, err
		}
	}
	f, ok := c.model.Provider.(provider.Forwarder)
	if !ok || !c.native {
		return false, nil
	}
	if hosted && !c.model.Native || !hosted && namesOurs(c.body) {
		return false, nil
	}
	return true, f.Forward(r.Context(), w, provider.Forward{Path: path, Header: r.Header, Body: c.body})
}

func isCodeExecution(kind string) bool { return strings.HasPrefix(kind, "code_execution_") }

// ownIDs begin the ids of what only we know: uploads, containers and their files, and calls that ran here. Ids of calls that the client
// ran are not among them: to a server they are as good as its own.
var ownIDs = []string{`"file_`, `"cntr_`, `"cfile_`, `"srvtoolu_`}

// namesOurs says that a request names something of ours, or has reasoning that was sealed here. An id stands in the body as a JSON string
// of its own: a prefix and 32 hex digits. Servers that mint ids of the same form only lose that their bytes are untouched.
func namesOurs(body []byte) bool {
	if bytes.Contains(body, []byte(`"`+sealPrefix)) {
		return true
	}
	for _, prefix := range ownIDs {
		rest := body
		for {
			i := bytes.Index(rest, []byte(prefix))
			if i < 0 {
				break
			}
			rest = rest[i+len(prefix):]
			if len(rest) > 32 && rest[32] == '"' && isHex(string(rest[:32])) {
				return true
			}
		}
	}
	return false
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
