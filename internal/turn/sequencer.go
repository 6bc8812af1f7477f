package turn

// Sequencer builds well-formed provider events out of a model's deltas: it opens and closes blocks, and holds back the pieces of a
// call that arrive while another block is open. It is a pure state machine; the zero value is ready.
//
// Calls are told apart by index (any numbers). Only the first of several parallel calls streams; the others wait until text, reasoning
// or Close ends the group, since some upstreams interleave their pieces.
type Sequencer struct {
	open      openBlock
	text      []Part // of the open message; the text of the last one is in run
	reasoning Reasoning
	// run, thought and summary grow by appending: answers of 100,000 deltas are real, and joining strings would copy them each time.
	run, thought, summary []byte
	nextSummary           bool           // the next piece of summary begins another part
	calls                 []*pendingCall // in order of arrival; the open one is first
}

type openBlock int

const (
	openNone openBlock = iota
	openMessage
	openReasoning
	openCall
)

type pendingCall struct {
	index   int
	call    Call
	args    []byte // becomes call.Arguments
	sent    int    // of args, as CallDelta
	started bool
}

// Text adds text to the answer.
func (s *Sequencer) Text(delta string) []Event {
	if delta == "" {
		return nil
	}
	out := s.message()
	if n := len(s.text); n == 0 || !isText(s.text[n-1]) {
		s.begin(Text{})
	}
	s.run = append(s.run, delta...)
	return append(out, TextDelta{Text: delta})
}

// OpenMessage ends whatever is open and begins a message, which may stay empty.
func (s *Sequencer) OpenMessage() []Event {
	out := append(s.closeBlock(), MessageStarted{})
	s.open = openMessage
	s.begin(Text{})
	return out
}

// Refusal adds to a refusal.
func (s *Sequencer) Refusal(delta string) []Event {
	if delta == "" {
		return nil
	}
	out := s.message()
	if n := len(s.text); n == 0 || isText(s.text[n-1]) {
		s.begin(Refusal{})
	}
	s.run = append(s.run, delta...)
	return append(out, RefusalDelta{Text: delta})
}

// Annotate adds an annotation to the open message; without one it does nothing.
func (s *Sequencer) Annotate(a Annotation) []Event {
	if s.open != openMessage {
		return nil
	}
	for i := len(s.text) - 1; i >= 0; i-- {
		if t, ok := s.text[i].(Text); ok {
			t.Annotations = append(t.Annotations[:len(t.Annotations):len(t.Annotations)], a)
			s.text[i] = t
			return []Event{Annotated{Annotation: a}}
		}
	}
	return nil
}

// Reasoning adds reasoning text; field is the upstream's name for it (see Reasoning.Field).
func (s *Sequencer) Reasoning(delta, field string) []Event {
	if delta == "" {
		return nil
	}
	out := s.startReasoning()
	s.thought = append(s.thought, delta...)
	s.reasoning.Field = field
	return append(out, ReasoningDelta{Text: delta})
}

// ReasoningSummary adds to a summary of the reasoning.
func (s *Sequencer) ReasoningSummary(delta string) []Event {
	if delta == "" {
		return nil
	}
	out := s.startReasoning()
	s.summary = append(s.summary, delta...)
	next := s.nextSummary
	s.nextSummary = false
	return append(out, ReasoningDelta{Text: delta, Summary: true, Next: next})
}

// SummaryPart ends a part of the reasoning's summary: what follows is another one.
func (s *Sequencer) SummaryPart() {
	if len(s.summary) > 0 {
		s.reasoning.Summary = append(s.reasoning.Summary, string(s.summary))
		s.summary, s.nextSummary = nil, true
	}
}

// OpenReasoning ends whatever is open and begins reasoning that has an id of its own.
func (s *Sequencer) OpenReasoning(id string) []Event {
	out := s.closeBlock()
	s.open, s.reasoning.ID = openReasoning, id
	return append(out, ReasoningStarted{ID: id})
}

// Sign adds what must come back with the reasoning: a signature, encrypted content, or both.
func (s *Sequencer) Sign(signature, encrypted string) []Event {
	out := s.startReasoning()
	s.reasoning.Signature += signature
	s.reasoning.Encrypted += encrypted
	return out
}

// Call adds a piece of call number index. id and name may come once, late, repeated or never; an empty delta is fine.
func (s *Sequencer) Call(index int, id, name, delta string) []Event {
	var out []Event
	if s.open != openCall {
		out = s.closeBlock()
	}
	var p *pendingCall
	for _, q := range s.calls {
		if q.index == index {
			p = q
		}
	}
	if p == nil {
		p = &pendingCall{index: index}
		s.calls = append(s.calls, p)
	}
	if id != "" && p.call.CallID == "" {
		p.call.CallID = id
	}
	if name != "" && p.call.Name == "" {
		p.call.Name = name
	}
	p.args = append(p.args, delta...)
	s.open = openCall
	if s.calls[0] != p {
		return out // waits for the open one: some upstreams interleave parallel calls
	}
	return append(out, s.flushFirst()...)
}

// Close ends whatever is open. Call it before Finished.
func (s *Sequencer) Close() []Event { return s.closeBlock() }

func (s *Sequencer) message() []Event {
	if s.open == openMessage {
		return nil
	}
	out := s.closeBlock()
	s.open = openMessage
	return append(out, MessageStarted{})
}

// begin opens a part of the open message; the one before it gets its text.
func (s *Sequencer) begin(p Part) {
	s.settle()
	s.text = append(s.text, p)
}

// settle gives the last part the text that was collected for it.
func (s *Sequencer) settle() {
	if n := len(s.text); n > 0 {
		switch p := s.text[n-1].(type) {
		case Text:
			p.Text = string(s.run)
			s.text[n-1] = p
		case Refusal:
			s.text[n-1] = Refusal{Text: string(s.run)}
		}
	}
	s.run = nil
}

func isText(p Part) bool {
	_, ok := p.(Text)
	return ok
}

func (s *Sequencer) startReasoning() []Event {
	if s.open == openReasoning {
		return nil
	}
	out := s.closeBlock()
	s.open = openReasoning
	return append(out, ReasoningStarted{})
}

func (s *Sequencer) flushFirst() []Event {
	p := s.calls[0]
	var out []Event
	if !p.started {
		if p.call.Name == "" {
			return nil // cannot be announced yet
		}
		p.started = true
		out = append(out, CallStarted{CallID: p.call.CallID, Name: p.call.Name})
	}
	return append(out, p.unsent()...)
}

// unsent are the arguments that no CallDelta has had yet.
func (p *pendingCall) unsent() []Event {
	if p.sent == len(p.args) {
		return nil
	}
	delta := string(p.args[p.sent:])
	p.sent = len(p.args)
	return []Event{CallDelta{Delta: delta}}
}

func (s *Sequencer) closeBlock() []Event {
	var out []Event
	switch s.open {
	case openMessage:
		s.settle()
		out = append(out, MessageDone{Message: Message{Role: Assistant, Parts: s.text}})
		s.text = nil
	case openReasoning:
		if len(s.summary) > 0 {
			s.reasoning.Summary = append(s.reasoning.Summary, string(s.summary))
		}
		s.reasoning.Text = string(s.thought)
		out = append(out, ReasoningDone{Reasoning: s.reasoning})
		s.reasoning, s.thought, s.summary, s.nextSummary = Reasoning{}, nil, nil, false
	case openCall:
		for len(s.calls) > 0 {
			p := s.calls[0]
			if !p.started {
				p.started = true
				out = append(out, CallStarted{CallID: p.call.CallID, Name: p.call.Name})
			}
			out = append(out, p.unsent()...)
			p.call.Arguments = string(p.args)
			out = append(out, CallDone{Call: p.call})
			s.calls = s.calls[1:]
		}
	}
	s.open = openNone
	return out
}
