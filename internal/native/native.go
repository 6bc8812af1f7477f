// Package native is for models whose hosted tools are left to their provider (hosted_tools: provider): it remembers which project the
// provider made a container, file or response for, passes calls for such an id on to that provider, and refuses a request that names one
// that was made for another project. The provider knows only the gateway's account, to which all projects belong.
//
// It decorates providers and stands before the surfaces; it knows no tool and no loop. Only the wiring imports it.
package native

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Keeper knows who made what. Make it with New; it is safe for concurrent use once all providers are known to it.
type Keeper struct {
	steps  store.Steps
	log    *slog.Logger
	makers map[string]provider.Forwarder // by the model's name in the configuration
}

// New returns a Keeper without providers. A nil logger discards.
func New(steps store.Steps, log *slog.Logger) *Keeper {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Keeper{steps: steps, log: log, makers: map[string]provider.Forwarder{}}
}

// Provider makes p known as the maker called model. With watch it returns p as one whose answers are looked through. A provider that passes
// nothing on comes back as it is. Call it before the first request.
func (k *Keeper) Provider(model string, p provider.Provider, watch bool) provider.Provider {
	f, ok := p.(provider.Forwarder)
	if !ok {
		return p
	}
	k.makers[model] = f
	if !watch {
		return p
	}
	return &watched{Provider: p, Forwarder: f, keeper: k, model: model}
}

// prefix keeps these rows apart from steps, whose ids never have a slash.
const prefix = "native/"

// everyone is the project of the rows that say whose an id is.
const everyone = ""

// Remember notes that the model's provider made ids for the project of ctx.
func (k *Keeper) Remember(ctx context.Context, model string, ids ...string) error {
	project := auth.FromContext(ctx).Project
	now := time.Now()
	rows := make([]store.Step, 0, 2*len(ids))
	for _, id := range ids {
		rows = append(rows,
			store.Step{ID: prefix + id, Project: project, Body: []byte(model), CreatedAt: now},
			store.Step{ID: prefix + id, Project: everyone, Body: []byte(project), CreatedAt: now})
	}
	return k.steps.Put(ctx, rows...)
}

// Maker is the provider that made id for the project of ctx; nil where none did.
func (k *Keeper) Maker(ctx context.Context, id string) (provider.Forwarder, error) {
	found, err := k.steps.Get(ctx, auth.FromContext(ctx).Project, prefix+id)
	if err != nil {
		return nil, turn.Internal(err)
	}
	return k.makers[string(found[prefix+id].Body)], nil
}

// Admit refuses a request that names what was made for another project, in the words for an unknown id. What this gateway has never seen
// passes: operators put files there by other ways.
func (k *Keeper) Admit(ctx context.Context, body []byte) error {
	ids := named(body)
	if len(ids) == 0 {
		return nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = prefix + id
	}
	found, err := k.steps.Get(ctx, everyone, keys...)
	if err != nil {
		return turn.Internal(err)
	}
	project := auth.FromContext(ctx).Project
	for _, id := range ids {
		if row, ok := found[prefix+id]; ok && string(row.Body) != project {
			mine, err := k.Maker(ctx, id)
			if err != nil {
				return err
			}
			if mine == nil {
				return turn.NotFound("there is no %s", id)
			}
		}
	}
	return nil
}

// paths are the collections whose members a provider may have made.
var paths = []string{"/v1/containers/", "/v1/files/", "/v1/responses/"}

// Serve answers a call for something that a provider made, and says whether it did. The error is for the client; nothing has been written
// then.
func (k *Keeper) Serve(w http.ResponseWriter, r *http.Request) (bool, error) {
	if len(k.makers) == 0 {
		return false, nil
	}
	for _, collection := range paths {
		rest, ok := strings.CutPrefix(r.URL.Path, collection)
		if !ok {
			continue
		}
		id, _, _ := strings.Cut(rest, "/")
		if id == "" || len(id) > maxID {
			return false, nil
		}
		maker, err := k.Maker(r.Context(), id)
		if err != nil || maker == nil {
			return false, err
		}
		return true, Pass(w, r, maker)
	}
	return false, nil
}

// maxID is longer than any vendor's ids.
const maxID = 200

// Pass hands a call with its path, query and body to a provider.
func Pass(w http.ResponseWriter, r *http.Request, to provider.Forwarder) error {
	path := r.URL.Path
	if to.Protocol() != protocolAnthropic {
		path = strings.TrimPrefix(path, "/v1") // stands in the base URL there
	}
	return to.Forward(r.Context(), w, provider.Forward{Method: r.Method, Path: path, Query: r.URL.RawQuery, Header: r.Header, Stream: r.Body})
}

const protocolAnthropic = "anthropic"

// Account names the account behind a provider, "" where it does not say.
func (p *watched) Account() string {
	if a, ok := p.Provider.(interface{ Account() string }); ok {
		return a.Account()
	}
	return ""
}

// watched is a provider whose answers are looked through while they pass.
type watched struct {
	provider.Provider
	provider.Forwarder
	keeper *Keeper
	model  string
}

// Forward has the contract of provider.Forwarder. Bodies pass as they are; only their encoding is asked to be none, so that they can be read.
func (p *watched) Forward(ctx context.Context, w http.ResponseWriter, in provider.Forward) error {
	if err := p.keeper.Admit(ctx, in.Body); err != nil {
		return err
	}
	in.Header = in.Header.Clone()
	in.Header.Del("Accept-Encoding")
	reader := &reader{ResponseWriter: w}
	defer func() { // also where the answer broke off
		if ids := reader.ids(); len(ids) > 0 {
			// The client may have left; the ids are made all the same.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if err := p.keeper.Remember(ctx, p.model, ids...); err != nil {
				p.keeper.log.ErrorContext(ctx, "remembering what a provider made failed", "model", p.model, "error", err)
			}
		}
	}()
	return p.Forwarder.Forward(ctx, reader, in)
}
