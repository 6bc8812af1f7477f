// Package models is the surface of GET /v1/models and GET /v1/models/{id}: the names that clients may ask for. It knows the router's list
// and nothing of the providers behind it.
package models

import (
	"log/slog"
	"net/http"

	"github.com/lathe-gateway/lathe/internal/provider"
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

// New returns the handler of both paths. Ids may contain slashes, as those of many open models do.
func New(cfg Config) http.Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		out := list{Object: "list", Data: []model{}}
		for _, m := range cfg.Router.Models() {
			if m.Name != provider.Rest {
				out.Data = append(out.Data, object(m))
			}
		}
		oai.WriteJSON(w, http.StatusOK, out)
	})
	mux.HandleFunc("GET /v1/models/{id...}", func(w http.ResponseWriter, r *http.Request) {
		m, err := cfg.Router.Model(r.PathValue("id"))
		if err != nil {
			oai.WriteError(w, r, cfg.Logger, err)
			return
		}
		oai.WriteJSON(w, http.StatusOK, object(m))
	})
	return mux
}

func object(m provider.Model) model {
	return model{ID: m.Name, Object: "model", Created: m.Created, OwnedBy: m.ProviderName}
}
