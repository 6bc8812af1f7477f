package turn

import "slices"

// StreamResult is the Output.Stream of the value of the last expression.
const StreamResult = "result"

// Runs joins neighbouring texts as the vendors' code interpreters show them: what was printed and displayed is one run whatever it was
// written to, and the value of the last expression a run of its own. Images and notes of ours (Stream "") stay as they are. The result's
// texts have no Stream but StreamResult.
func Runs(outputs []Output) []Output {
	if outputs == nil {
		return nil
	}
	out := make([]Output, 0, len(outputs))
	open := false // the last of out is printed text
	for _, o := range outputs {
		printed := !o.IsImage() && o.Stream != "" && o.Stream != StreamResult
		if printed {
			o.Stream = ""
		}
		if n := len(out); printed && open {
			out[n-1].Text += o.Text
		} else {
			out = append(out, o)
		}
		open = printed
	}
	return out
}

// SameOutputs says whether a client's copy of a call has all that the stored call put out: the same runs or, where the copy knows streams,
// the same text on each of them.
func SameOutputs(client, stored HostedCall) bool {
	a, b := Runs(client.Outputs), Runs(stored.Outputs)
	if slices.EqualFunc(a, b, func(x, y Output) bool { return x.Text == y.Text && x.IsImage() == y.IsImage() }) {
		return true
	}
	for _, o := range client.Outputs {
		if o.Stream != "stdout" && o.Stream != "stderr" {
			return false
		}
	}
	return len(client.Outputs) > 0 && client.Stdout() == stored.Stdout() && client.Stderr() == stored.Stderr()
}

// Stdout is what a client that knows two streams sees as the standard output: all text but that of stderr, in order, the value of the last
// expression on a line of its own.
func (c HostedCall) Stdout() string {
	var s []byte
	for _, o := range c.Outputs {
		if o.IsImage() || o.Stream == "stderr" {
			continue
		}
		if o.Stream == StreamResult && len(s) > 0 && s[len(s)-1] != '\n' {
			s = append(s, '\n')
		}
		s = append(s, o.Text...)
	}
	return string(s)
}

// Stderr is the text of stderr, and Failure on a line of its own.
func (c HostedCall) Stderr() string {
	var s []byte
	for _, o := range c.Outputs {
		if o.Stream == "stderr" {
			s = append(s, o.Text...)
		}
	}
	if c.Failure != "" {
		if len(s) > 0 && s[len(s)-1] != '\n' {
			s = append(s, '\n')
		}
		s = append(s, c.Failure+"\n"...)
	}
	return string(s)
}
