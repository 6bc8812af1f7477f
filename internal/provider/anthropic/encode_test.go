package anthropic

import (
	"encoding/json"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func ask(items ...turn.Item) *turn.Request {
	if len(items) == 0 {
		items = []turn.Item{says(turn.User, "hi")}
	}
	return &turn.Request{Model: "m", Items: items}
}

// with edits a request.
func with(r *turn.Request, edit func(*turn.Request)) *turn.Request {
	edit(r)
	return r
}

func user(parts ...turn.Part) *turn.Request { return ask(turn.Message{Role: turn.User, Parts: parts}) }

func effort(e string) *turn.Request {
	return with(ask(), func(r *turn.Request) { r.Reasoning.Effort = e })
}

func temperature(f float64) *turn.Request {
	return with(ask(), func(r *turn.Request) { r.Sampling.Temperature = &f })
}

var weather = turn.Tool{Name: "weather", Description: "d", Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`), Strict: new(true)}

func encodeCases() map[string]encodeCase {
	out := requestCases()
	for name, c := range conversationCases() {
		out[name] = c
	}
	for name, c := range ownCases() {
		out[name] = c
	}
	for name, c := range refusedCases() {
		out[name] = c
	}
	return out
}

func requestCases() map[string]encodeCase {
	loop := func() *turn.Request {
		r := effort("high")
		r.Tools = []turn.Tool{weather}
		r.Items = append(r.Items, turn.Call{CallID: "c1", Name: "weather", Arguments: "{}"}, result("c1", turn.Text{Text: "ok"}))
		return r
	}
	return map[string]encodeCase{
		"everything": {"every field of the request stands where the protocol has it; a seed, the verbosity, our metadata and the like stay behind; extra fields survive behind the known ones, betas go into a header", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{says(turn.Developer, "be brief"), says(turn.User, "hi")},
			Tools:             []turn.Tool{weather, {Name: "g", Strict: new(false)}, {Name: "h", Parameters: json.RawMessage(`{"properties":{}}`)}},
			ToolChoice:        turn.ToolChoice{Mode: turn.ChoiceFunction, Name: "weather"},
			ParallelToolCalls: new(false),
			Sampling: turn.Sampling{Temperature: new(0.5), TopP: new(0.9), PresencePenalty: new(0.0), FrequencyPenalty: new(0.0),
				Seed: new(int64(7)), Stop: []string{"X"}},
			MaxOutputTokens: new(10), Verbosity: "high",
			Format:   &turn.Format{Type: "json_schema", Name: "n", Schema: json.RawMessage(`{"type":"object"}`), Strict: new(true)},
			Metadata: map[string]string{"k": "v"}, User: "u", SafetyIdentifier: "s", PromptCacheKey: "p", ServiceTier: "default",
			Extra: turn.Extra{Protocol: Protocol, Fields: map[string]json.RawMessage{
				"top_k": json.RawMessage("40"), "betas": json.RawMessage(`["b"]`), "model": json.RawMessage(`"evil"`)}},
		}},
		"other-protocol": {"extra fields of another protocol stay behind; sampling that is the default anyway is left out", encoder{}, with(ask(), func(r *turn.Request) {
			r.Sampling.Temperature, r.Sampling.TopP, r.SafetyIdentifier, r.ServiceTier = new(1.0), new(1.0), "s", "auto"
			r.ToolChoice, r.ParallelToolCalls = turn.ToolChoice{Mode: turn.ChoiceAuto}, new(true)
			r.Extra = turn.Extra{Protocol: "openai-chat", Fields: map[string]json.RawMessage{"top_k": json.RawMessage("40")}}
		})},
		"parallel-off":    {"one call at a time, without a tool_choice of the client's", encoder{}, with(ask(), func(r *turn.Request) { r.Tools, r.ParallelToolCalls = []turn.Tool{weather}, new(false) })},
		"choice-required": {"required is any", encoder{}, with(ask(), func(r *turn.Request) { r.Tools, r.ToolChoice.Mode = []turn.Tool{weather}, turn.ChoiceRequired })},
		"choice-none": {"none has no flag for parallel calls", encoder{}, with(ask(), func(r *turn.Request) {
			r.Tools, r.ToolChoice.Mode, r.ParallelToolCalls = []turn.Tool{weather}, turn.ChoiceNone, new(false)
		})},
		"effort":           {"an effort is adaptive thinking that is told", encoder{}, effort("high")},
		"effort-minimal":   {"the least effort is low", encoder{}, effort("minimal")},
		"effort-none":      {"no effort turns thinking off", encoder{}, effort("none")},
		"effort-refused":   {"a model that knows no effort thinks adaptively", encoder{learned{noEffort: true}}, effort("xhigh")},
		"effort-budget":    {"a model that refuses adaptive thinking gets a budget", encoder{learned{budget: true}}, effort("medium")},
		"effort-small":     {"the budget is at most half of max_tokens", encoder{learned{budget: true}}, with(effort("high"), func(r *turn.Request) { r.MaxOutputTokens = new(6000) })},
		"effort-too-small": {"no thinking where half of max_tokens is below the least budget", encoder{learned{budget: true}}, with(effort("high"), func(r *turn.Request) { r.MaxOutputTokens = new(2000) })},
		"effort-forced": {"a call that is forced to use a tool does not think", encoder{}, with(effort("high"), func(r *turn.Request) {
			r.Tools, r.ToolChoice.Mode = []turn.Tool{weather}, turn.ChoiceRequired
		})},
		"effort-unthought":  {"a turn of calls that began without thinking may not go on with a budget", encoder{learned{budget: true}}, loop()},
		"effort-and-format": {"effort and format share output_config", encoder{}, with(effort("low"), func(r *turn.Request) { r.Format = &turn.Format{Type: "json_schema", Schema: json.RawMessage(`{}`)} })},
		"top-p-and-effort":  {"a top_p of 0.95 and more goes with thinking", encoder{}, with(effort("low"), func(r *turn.Request) { r.Sampling.TopP = new(0.96) })},
		"small-model":       {"a model that can write less is asked for that", encoder{learned{maxTokens: 8192}}, ask()},
		"own-cache-control": {"a client that caches for itself gets no breakpoints", encoder{}, with(ask(says(turn.System, "s"), says(turn.User, "hi")), func(r *turn.Request) {
			r.Tools = []turn.Tool{weather}
			r.Extra = turn.Extra{Protocol: Protocol, Fields: map[string]json.RawMessage{"cache_control": json.RawMessage(`{"type":"ephemeral"}`)}}
		})},
	}
}

func conversationCases() map[string]encodeCase {
	png := turn.Image{URL: "data:image/png;base64,AAAA", Detail: "original"}
	return map[string]encodeCase{
		"tool-loop": {"thinking goes back with its signature, in its place; the results of parallel calls are one user message; reasoning of other models, sealed or not, stays behind; arguments that are no object are wrapped", encoder{}, with(ask(
			says(turn.User, "go"), turn.Reasoning{Text: "hm", Signature: "S1"}, says(turn.Assistant, "Let me see."),
			turn.Call{CallID: "toolu_1", Name: "python", Arguments: `{"code":"1"}`}, turn.Call{CallID: "toolu_2", Name: "python", Arguments: "print(2)"},
			result("toolu_1", turn.Text{Text: "1"}), turn.Result{CallID: "toolu_2", Parts: []turn.Part{turn.Text{Text: "boom"}}, Error: true},
			turn.Reasoning{Encrypted: "D", Field: fieldRedacted}, turn.Reasoning{Text: "unsigned"}, turn.Reasoning{Encrypted: "of another"}, turn.Reasoning{Signature: "S2"},
			turn.Call{CallID: "toolu_3", Name: "python"}, result("toolu_3"), says(turn.Assistant, "Done."), says(turn.User, "thanks"),
		), func(r *turn.Request) { r.Tools = []turn.Tool{{Name: "python"}} })},
		"thinking-refused": {"a server that does not take the signatures gets the conversation without thinking", encoder{learned{noThinkingBack: true}}, ask(
			says(turn.User, "go"), turn.Reasoning{Text: "hm", Signature: "S1"}, says(turn.Assistant, "a"), says(turn.User, "b"))},
		"odd-ids": {"ids that the server does not take are replaced; an id that comes again gets a number, with its own result", encoder{}, ask(
			says(turn.User, "go"), turn.Call{CallID: "call_0", Name: "f"}, result("call_0", turn.Text{Text: "1"}),
			turn.Call{CallID: "call_0", Name: "f"}, turn.Call{CallID: "functions.g:1", Name: "functions.g"}, result("functions.g:1", turn.Text{Text: "3"}), result("call_0", turn.Text{Text: "2"}),
			turn.Call{Name: "f"}, result("", turn.Text{Text: "4"}))},
		"last-round": {"tools that only the history knows are declared, and may not be called", encoder{}, ask(
			says(turn.User, "go"), turn.Call{CallID: "c1", Name: "f"}, turn.Call{CallID: "c2", Name: "f"}, result("c1", turn.Text{Text: "1"}), result("c2", turn.Text{Text: "2"}))},
		"roles": {"consecutive roles are one message, blank texts are left out, a message of blanks disappears", encoder{}, ask(
			says(turn.User, "a"), says(turn.User, " \n"), turn.Message{Role: turn.User, Parts: []turn.Part{turn.Text{}, turn.Text{Text: "b"}}},
			says(turn.Assistant, ""), says(turn.Assistant, "c"), turn.Message{Role: turn.Assistant, Parts: []turn.Part{turn.Refusal{Text: "d"}}}, says(turn.User, "e"))},
		"system-places": {"system text in front is system; later it waits for the end of the user's turn, also behind results", encoder{}, ask(
			says(turn.System, "s1"), says(turn.Developer, "s2"), says(turn.User, "a"), says(turn.System, "s3"), says(turn.User, "b"), says(turn.Assistant, "c"), says(turn.Developer, "s4"),
			says(turn.User, "d"), turn.Call{CallID: "c1", Name: "f"}, says(turn.System, "s5"), result("c1", turn.Text{Text: "r"}))},
		"system-in-front":  {"a model that takes no system text between turns gets all of it in front", encoder{learned{noSystemTurns: true}}, ask(says(turn.User, "a"), says(turn.System, "s1"), says(turn.Assistant, "b"), says(turn.User, "c"), says(turn.System, "s2"))},
		"system-at-end":    {"system text behind an assistant's turn is what is to be answered", encoder{}, ask(says(turn.User, "a"), says(turn.Assistant, "b"), says(turn.System, "sum up"))},
		"system-only":      {"a conversation of system text alone asks with the last of it", encoder{}, ask(says(turn.System, "s1"), says(turn.System, "s2"))},
		"assistant-first":  {"the user must begin", encoder{}, ask(says(turn.Assistant, "Hello, what is it?"), says(turn.User, "this"))},
		"assistant-last":   {"a beginning of the answer may not end in white space", encoder{}, ask(says(turn.User, "a"), says(turn.Assistant, "The answer is \n"))},
		"results-in-front": {"results stand before all else in their message", encoder{}, ask(says(turn.User, "go"), turn.Call{CallID: "c1", Name: "f"}, says(turn.User, "wait"), result("c1", turn.Text{Text: "r"}))},
		"result-images": {"images stand in results; an error with an image is not marked as one, since the server wants only text there", encoder{}, ask(
			says(turn.User, "plot"), turn.Call{CallID: "c1", Name: "f"}, turn.Call{CallID: "c2", Name: "f"}, result("c1", turn.Text{Text: "ok"}, png),
			turn.Result{CallID: "c2", Parts: []turn.Part{turn.Text{Text: "boom"}, png}, Error: true})},
		"parts": {"images by data URI and by URL, a PDF, text, a document by URL, and a part of this protocol as it came", encoder{}, user(
			turn.Text{Text: "see"}, png, turn.Image{URL: "https://x/y.png"}, turn.Image{URL: "data:image/jpg,%41%42"}, turn.Document{Name: "a.pdf", Data: []byte("%PDF-1")}, turn.Document{Name: "a.csv", MIME: "text/csv", Data: []byte("a,b")},
			turn.Document{Name: "a.json", Data: []byte("{}")}, turn.Document{URL: "https://x/y.pdf"},
			turn.Foreign{Protocol: Protocol, Kind: "search_result", JSON: json.RawMessage(`{"type":"search_result","source":"s","title":"t","content":[]}`)})},
	}
}

// ours is a part as this protocol wrote it.
func ours(json string) *turn.Raw { return &turn.Raw{Protocol: Protocol, JSON: []byte(json)} }

func ownCases() map[string]encodeCase {
	cited := turn.Text{Text: "sky", Raw: ours(`{"type":"text","text":"sky","citations":[{"type":"web_search_result_location","cited_text":"q","url":"https://x","title":"T","encrypted_index":"E"}]}`)}
	computer := func(name string) turn.Tool {
		return turn.Tool{Name: name, Toolset: "computer", Raw: ours(`{"type":"computer_toolset_20260801","configs":{"zoom":{"enabled":true}}}`)}
	}
	return map[string]encodeCase{
		"own-blocks": {"blocks go back as they were written, but for ids, arguments and sources that were uploaded here; another protocol's are translated; blocks of the server's own tools stand in their place; who caches for himself gets no breakpoints", encoder{}, ask(
			turn.Message{Role: turn.System, Parts: []turn.Part{turn.Text{Text: "s", Raw: ours(`{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}`)}}},
			turn.Message{Role: turn.User, Parts: []turn.Part{
				turn.Text{Text: "a", Raw: &turn.Raw{Protocol: "openai-chat", JSON: []byte(`{"type":"text","text":"evil"}`)}},
				turn.Image{URL: "data:image/png;base64,AAAA", Raw: ours(`{"type":"image","source":{"type":"file","file_id":"file_1"},"transformations":[1]}`)},
				turn.Document{Name: "a.txt", MIME: "text/plain", Data: []byte("x"), Raw: ours(`{"type":"document","source":{"type":"file","file_id":"file_2"},"title":"T","citations":{"enabled":true}}`)},
				turn.Document{Name: "b", Raw: ours(`{"type":"document","source":{"type":"content","content":"c"},"context":"k"}`)},
			}},
			turn.Block{Protocol: Protocol, Kind: "server_tool_use", JSON: []byte(`{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}}`)},
			turn.Block{Protocol: Protocol, Kind: "web_search_tool_result", JSON: []byte(`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}`)},
			turn.Block{Protocol: "openai-responses", Kind: "web_search_call", JSON: []byte(`{}`)},
			turn.Message{Role: turn.Assistant, Parts: []turn.Part{cited}},
			turn.Call{CallID: "call 1", Name: "click", Arguments: `{"x":1}`, Raw: ours(`{"type":"tool_use","id":"toolu_9","name":"click","input":{"x":2},"toolset_name":"computer","caller":{"type":"direct"}}`)},
			turn.Result{CallID: "call 1", Parts: []turn.Part{turn.Text{Text: "ok"}}, Raw: ours(`{"type":"tool_result","tool_use_id":"toolu_9","content":"not this","toolset_name":"computer","is_error":false}`)},
		)},
		"own-request": {"fields of the client's own replace what is made of the canonical ones; sampling is the server's to judge; a set of tools is declared once, and who may call a tool is not said", encoder{}, with(effort("high"), func(r *turn.Request) {
			r.Tools = []turn.Tool{computer("click"), computer("type"), {Name: "f", Programmatic: true, Raw: ours(`{"name":"f","input_schema":{"type":"object"},"allowed_callers":["code_execution_20260120"],"input_examples":[{}]}`)}, weather}
			r.Sampling.Temperature, r.User, r.Format = new(0.5), "u", &turn.Format{Type: "json_schema", Schema: json.RawMessage(`{}`)}
			r.Extra = turn.Extra{Protocol: Protocol, Fields: map[string]json.RawMessage{
				"thinking": json.RawMessage(`{"type":"enabled","budget_tokens":2000}`), "output_config": json.RawMessage(`{"effort":"max"}`), "metadata": json.RawMessage(`{"user_id":"v"}`),
			}}
		})},
	}
}

func refusedCases() map[string]encodeCase {
	return map[string]encodeCase{
		"no-presence-penalty":   {"refused by name", encoder{}, with(ask(), func(r *turn.Request) { r.Sampling.PresencePenalty = new(0.5) })},
		"no-frequency-penalty":  {"refused by name", encoder{}, with(ask(), func(r *turn.Request) { r.Sampling.FrequencyPenalty = new(0.5) })},
		"no-logprobs":           {"refused by name", encoder{}, with(ask(), func(r *turn.Request) { r.Sampling.TopLogprobs = new(0) })},
		"no-json-object":        {"refused by name", encoder{}, with(ask(), func(r *turn.Request) { r.Format = &turn.Format{Type: "json_object"} })},
		"no-flex":               {"refused by name", encoder{}, with(ask(), func(r *turn.Request) { r.ServiceTier = "flex" })},
		"no-effort-of-that":     {"refused by name", encoder{}, effort("heroic")},
		"no-hot-temperature":    {"OpenAI's goes to 2, this one to 1", encoder{}, temperature(1.5)},
		"no-temperature":        {"not while the model reasons", encoder{}, with(temperature(0.5), func(r *turn.Request) { r.Reasoning.Effort = "low" })},
		"no-top-p":              {"not while the model reasons", encoder{}, with(effort("low"), func(r *turn.Request) { r.Sampling.TopP = new(0.5) })},
		"no-image-by-id":        {"the server does not have our files", encoder{}, user(turn.Image{FileID: "file_1"})},
		"no-file-by-id":         {"the server does not have our files", encoder{}, user(turn.Document{FileID: "file_1"})},
		"no-svg":                {"only some kinds of images", encoder{}, user(turn.Image{URL: "data:image/svg+xml;base64,AAAA"})},
		"no-office":             {"only PDF and text", encoder{}, user(turn.Document{Name: "a.docx", Data: []byte("PK\x03\x04\x00")})},
		"no-foreign-part":       {"a part of another protocol is refused by its kind", encoder{}, user(turn.Foreign{Protocol: "openai-chat", Kind: "input_audio"})},
		"no-image-of-assistant": {"an assistant has only text", encoder{}, ask(turn.Message{Role: turn.Assistant, Parts: []turn.Part{turn.Image{URL: "https://x"}}})},
	}
}
