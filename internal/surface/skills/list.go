package skills

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/skill/catalog"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// The longest pages of the dialects.
const (
	longestOpenAI = 100
	longestGA     = 1000
	longestBeta   = 100
)

// paging is what a list's query asks for, in any dialect.
type paging struct {
	after     string
	afterTime time.Time
	limit     int
	ascending bool
	none      bool // OpenAI's limit=0: only whether there are any
}

func (d dialect) paging(q url.Values) (paging, error) {
	if d == openai {
		none := q.Get("limit") == "0"
		if none {
			q.Set("limit", "1")
		}
		p, err := oai.ReadPaging(q, anthropic.StandardLimit, longestOpenAI)
		return paging{after: p.After, limit: p.Limit, ascending: p.Ascending, none: none}, err
	}
	most := longestGA
	if d == anthropicBeta {
		most = longestBeta
	}
	limit, err := anthropic.ReadLimit(q, most)
	if err != nil {
		return paging{}, err
	}
	p := paging{limit: limit}
	token := q.Get("page")
	if token == "" {
		return p, nil
	}
	p.after, p.afterTime, err = readCursor(token)
	return p, err
}

// cursor is the page token behind a row: its id, and its time in case that it is gone when the next page is asked for.
func cursor(id string, at time.Time) string {
	return "page_" + base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at.UnixMicro(), 10)+" "+id))
}

func readCursor(token string) (string, time.Time, error) {
	bad := turn.Invalid("page", "page: %q is not a page of this list: begin again without it", cut(token))
	body, ok := strings.CutPrefix(token, "page_")
	text, err := base64.RawURLEncoding.DecodeString(body)
	if !ok || err != nil {
		return "", time.Time{}, bad
	}
	number, id, ok := strings.Cut(string(text), " ")
	micros, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || id == "" {
		return "", time.Time{}, bad
	}
	return id, time.UnixMicro(micros), nil
}

// betaPage is a list under the beta header (wire/anthropic.md 1.11).
type betaPage[T any] struct {
	Data     []T     `json:"data"`
	HasMore  bool    `json:"has_more"`
	NextPage *string `json:"next_page"`
}

// row is an element of a list with what its cursor needs.
type row struct {
	id   string
	at   time.Time
	body any
}

func (d dialect) writeList(w http.ResponseWriter, rows []row, more bool, p paging) {
	if p.none {
		more, rows = more || len(rows) > 0, nil
	}
	data := make([]any, len(rows))
	for i, r := range rows {
		data[i] = r.body
	}
	next := ""
	if more && len(rows) > 0 {
		last := rows[len(rows)-1]
		next = cursor(last.id, last.at)
	}
	switch d {
	case anthropicGA:
		oai.WriteJSON(w, http.StatusOK, anthropic.Page[any]{Data: data, NextPage: oai.Optional(next)})
	case anthropicBeta:
		oai.WriteJSON(w, http.StatusOK, betaPage[any]{Data: data, HasMore: more, NextPage: oai.Optional(next)})
	default:
		list := oai.List[any]{Object: "list", Data: data, HasMore: more}
		if len(rows) > 0 {
			list.FirstID, list.LastID = &rows[0].id, &rows[len(rows)-1].id
		}
		oai.WriteJSON(w, http.StatusOK, list)
	}
}

// list answers with the skills that the project may read. With query it is a search, the best match first; top_k is another word for
// limit then, as LiteLLM has it.
func (h *Handler) list(d dialect, w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	query := q.Get("query")
	if k, err := strconv.Atoi(q.Get("top_k")); err == nil && query != "" && !q.Has("limit") {
		q.Set("limit", strconv.Itoa(min(max(k, 1), 100)))
	}
	p, err := d.paging(q)
	if err != nil {
		return err
	}
	page := store.SkillPage{After: p.after, AfterTime: p.afterTime, Limit: p.limit, Ascending: p.ascending, Query: query}
	switch q.Get("source") {
	case "":
	case "custom":
		page.Custom = true
	case "anthropic":
		page.Library = true
	default:
		return turn.Invalid("source", "source: must be custom or anthropic, got %q", cut(q.Get("source")))
	}
	skills, more, err := h.skills.List(r.Context(), page)
	if err != nil {
		return err
	}
	rows := make([]row, len(skills))
	for i, s := range skills {
		rows[i] = row{s.ID, s.CreatedAt, d.skill(s, own(r, s), nil)}
	}
	d.writeList(w, rows, more, p)
	return nil
}

func (h *Handler) versions(d dialect, w http.ResponseWriter, r *http.Request) error {
	p, err := d.paging(r.URL.Query())
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	after := p.after
	if after != "" && !strings.HasPrefix(after, "skver_") && after != catalog.Latest && after != catalog.Default {
		// Clients of OpenAI's dialect know a version by its number as well.
		if _, v, err := h.skills.Version(r.Context(), id, after); err == nil {
			after = v.ID
		}
	}
	_, versions, more, err := h.skills.Versions(r.Context(), id, store.Page{After: after, Limit: p.limit, Ascending: p.ascending})
	if err != nil {
		return err
	}
	rows := make([]row, len(versions))
	for i, v := range versions {
		rows[i] = row{v.ID, v.CreatedAt, d.version(v, nil)}
	}
	d.writeList(w, rows, more, p)
	return nil
}
