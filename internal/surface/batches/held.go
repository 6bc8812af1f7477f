package batches

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
)

// held is an answer of the vendor about a batch, which is small, before it goes to the client.
type held struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *held) Header() http.Header { return a.header }

func (a *held) WriteHeader(status int) { a.status = status }

func (a *held) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.body.Write(p)
}

// plain are a client's headers without its wish for an encoding.
func plain(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Accept-Encoding")
	return h
}

// id is that of the batch that was answered with.
func (a *held) id() string {
	var batch struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(a.body.Bytes(), &batch) != nil {
		return ""
	}
	return batch.ID
}

// rewritten is the batch with results_url at this gateway: SDKs fetch the results from where it says, with the client's key.
func (a *held) rewritten(r *http.Request) json.RawMessage {
	var batch map[string]json.RawMessage
	if json.Unmarshal(a.body.Bytes(), &batch) != nil {
		return a.body.Bytes()
	}
	var id, url string
	if json.Unmarshal(batch["results_url"], &url) != nil || url == "" || json.Unmarshal(batch["id"], &id) != nil {
		return a.body.Bytes()
	}
	scheme := "http://"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https://"
	}
	own, err := json.Marshal(scheme + r.Host + collection + "/" + id + "/results")
	if err != nil {
		return a.body.Bytes()
	}
	batch["results_url"] = own
	out, err := json.Marshal(batch)
	if err != nil {
		return a.body.Bytes()
	}
	return out
}

func (a *held) send(w http.ResponseWriter, r *http.Request) {
	body := a.rewritten(r)
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // an error means that the client left
}
