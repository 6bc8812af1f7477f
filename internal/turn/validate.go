package turn

import "fmt"

// Validator checks that a sequence of events is well formed (the grammar at Event). The zero value is ready. Tests put it behind every
// provider and behind the agent.
type Validator struct {
	started, finished bool
	block             string // "" or message, reasoning, call, hosted, code-done, running
	text, args, code  string
}

// Push returns an error for an event that may not come now, or whose whole differs from its deltas.
func (v *Validator) Push(ev Event) error {
	if v.finished {
		return fmt.Errorf("%T after Finished", ev)
	}
	if _, ok := ev.(Started); ok != !v.started {
		return fmt.Errorf("%T where Started must come first and once", ev)
	}
	switch e := ev.(type) {
	case Started:
		v.started = true
	case MessageStarted:
		v.text = ""
		return v.move(ev, "", "message")
	case TextDelta:
		v.text += e.Text
		if e.Text == "" {
			return fmt.Errorf("empty TextDelta")
		}
		return v.move(ev, "message", "message")
	case RefusalDelta:
		v.text += e.Text
		return v.move(ev, "message", "message")
	case Annotated:
		return v.move(ev, "message", "message")
	case MessageDone:
		whole := ""
		for _, p := range e.Message.Parts {
			switch p := p.(type) {
			case Text:
				whole += p.Text
			case Refusal:
				whole += p.Text
			}
		}
		if whole != v.text {
			return fmt.Errorf("MessageDone has %q, its deltas %q", whole, v.text)
		}
		return v.move(ev, "message", "")
	case ReasoningStarted:
		return v.move(ev, "", "reasoning")
	case ReasoningDelta:
		return v.move(ev, "reasoning", "reasoning")
	case ReasoningDone:
		return v.move(ev, "reasoning", "")
	case CallStarted:
		v.args = ""
		return v.move(ev, "", "call")
	case CallDelta:
		v.args += e.Delta
		return v.move(ev, "call", "call")
	case CallDone:
		if e.Call.Arguments != v.args {
			return fmt.Errorf("CallDone has %q, its deltas %q", e.Call.Arguments, v.args)
		}
		return v.move(ev, "call", "")
	case HostedStarted:
		v.code = ""
		return v.move(ev, "", "hosted")
	case HostedCodeDelta:
		v.code += e.Delta
		return v.move(ev, "hosted", "hosted")
	case HostedCodeDone:
		if e.Code != v.code {
			return fmt.Errorf("HostedCodeDone has %q, its deltas %q", e.Code, v.code)
		}
		return v.move(ev, "hosted", "code-done")
	case HostedRunning:
		return v.move(ev, "code-done", "running")
	case HostedOutput:
		return v.move(ev, "running", "running")
	case HostedDone:
		if v.block == "hosted" || v.block == "code-done" {
			v.block = "running" // a call that could not be run
		}
		return v.move(ev, "running", "")
	case HostedResumed:
		return v.move(ev, "", "code-done")
	case HostedPaused:
		if v.block == "code-done" {
			v.block = "running" // its calls are shown once more
		}
		return v.move(ev, "running", "")
	case BlockDone:
		return v.move(ev, "", "")
	case Finished:
		v.finished = true
		return v.move(ev, "", "")
	default:
		return fmt.Errorf("unknown event %T", ev)
	}
	return nil
}

// End returns an error if the sequence may not end here.
func (v *Validator) End() error {
	if !v.finished {
		return fmt.Errorf("no Finished")
	}
	return nil
}

func (v *Validator) move(ev Event, from, to string) error {
	if v.block != from {
		return fmt.Errorf("%T while block is %q, want %q", ev, v.block, from)
	}
	v.block = to
	return nil
}
