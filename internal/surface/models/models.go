// Package models is the surface of GET /v1/models and GET /v1/models/{id}: the names that clients may ask for. It knows the router's list
// and nothing of the providers behind it.
package models

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
)

// Router knows the models; provider.Router is one.
type Router interface {
	// Models are all models, the one called "*" included.
	Models() []provider.Model
	// Model finds the model that answers to name, also by "*". Its error is a *turn.Error.
	Model(name string) (provider.Model, error)
}

var _ Router = (*provider.Router)(nil)

// Config is what New needs. Router is required.
type Config struct {
	Router Router
	// Logger gets the errors that clients must not see; nil means slog.Default.
	Logger *slog.Logger
}

// model mirrors the Model object of wire/openai.md section 6.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

type list struct {
	Object string  `json:"object"`
	Data   []model `json:"data"`
}

// New returns the handler of both paths, in both vendors' dialects: the headers of a request decide. Ids may contain slashes, as those of
// many open models do.
func New(cfg Config) http.Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		if anthropic.Speaks(r) {
			if err := cfg.listInfo(w, r); err != nil {
				anthropic.WriteError(w, r, cfg.Logger, err)
			}
			return
		}
		out := list{Object: "list", Data: []model{}}
		for _, m := range cfg.named() {
			out.Data = append(out.Data, object(m))
		}
		oai.WriteJSON(w, http.StatusOK, out)
	})
	mux.HandleFunc("GET /v1/models/{id...}", func(w http.ResponseWriter, r *http.Request) {
		m, err := cfg.Router.Model(r.PathValue("id"))
		switch {
		case err != nil && anthropic.Speaks(r):
			anthropic.WriteError(w, r, cfg.Logger, err)
		case err != nil:
			oai.WriteError(w, r, cfg.Logger, err)
		case anthropic.Speaks(r):
			anthropic.WriteJSON(w, http.StatusOK, info(m))
		default:
			oai.WriteJSON(w, http.StatusOK, object(m))
		}
	})
	return mux
}

// named are the models that have a name of their own.
func (c Config) named() []provider.Model {
	return slices.DeleteFunc(c.Router.Models(), func(m provider.Model) bool { return m.Name == provider.Rest })
}

func object(m provider.Model) model {
	return model{ID: m.Name, Object: "model", Created: m.Created, OwnedBy: m.ProviderName}
}
