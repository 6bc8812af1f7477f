// Package proto is the wire between the host and the guest, the program that is PID 1 inside a sandbox: frames of a type, a call id and
// a payload, over any pair of byte streams. It has the frames and their payloads, nothing of what they do.
//
// Both ends treat the other as hostile: a frame's size is capped before anything is allocated for it, memory grows only as bytes
// arrive, and an unknown type or a payload that does not decode is an error that ends the connection. It imports nothing of this project;
// internal/guest and internal/sandbox/link are its only users.
package proto

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Version changes when either end would misread the other. The host refuses a guest of another version.
const Version = 3

// MaxPayload caps a frame: the code of a call on the way in, an image on the way out.
const MaxPayload = 16 << 20

// MaxChunk is how much output a guest puts into one Output frame.
const MaxChunk = 64 << 10

// Type says what a frame means and so how its payload is read.
type Type uint8

// The host sends Ping, Start, Resume, Warm, Renew, Interrupt, Kill, Shutdown, Connect, Disconnect, Terminal, Input, Resize and Taken;
// both ends send those of streams; the guest everything else. A call's frames are Started or Refused, any number of Output and Display, and
// after Started one Result or Calls. Ping, Hello,
// and the frames of the network as a whole have call id 0; the Call of a stream's frame is the stream's id.
const (
	// Ping has no payload and is answered by Hello, at any time: it is how a host greets a guest that was restored from a checkpoint too.
	Ping Type = iota + 1
	// Hello is JSON: a HelloInfo.
	Hello
	// Start is JSON: a StartCall.
	Start
	// Warm is JSON: a WarmCall. It is answered like a Start of the Python kernel.
	Warm
	// Renew is JSON: a RenewCall. After a restore it gives the Python kernel fresh randomness; it is answered like a Start.
	Renew
	// Started has no payload: the code is about to run and may have acted from here on.
	Started
	// Refused is text: the code certainly did not run, and why.
	Refused
	// Output is a stream byte and raw bytes, not cut at character boundaries.
	Output
	// Display is an image: the length of the MIME type in one byte, the type, the data. See DecodeDisplay.
	Display
	// Interrupt has no payload: SIGINT to the call, then, after a grace time of the guest's, SIGKILL.
	Interrupt
	// Kill has no payload: SIGKILL to the call at once.
	Kill
	// Result is JSON: a CallResult. It is the call's last frame.
	Result
	// Shutdown has no payload: the guest kills everything and exits.
	Shutdown
	// Resume is JSON: a ResumeCall. It is answered like the Start of the program that it lets go on.
	Resume
	// Calls is JSON: a CallsInfo. It is the last frame of a call whose program waits; Resume begins another one.
	Calls
	// Connect is JSON: a ConnectCall. From then on the guest listens on a port of its loopback for programs that want the network, and
	// opens a stream for each of their connections. It is answered by Connected.
	Connect
	// Connected is JSON: a ConnectedInfo.
	Connected
	// Disconnect has no payload: the guest resets all streams, stops to listen, and answers with Disconnected. Neither end sends a
	// stream's frame behind it, so that a checkpoint is not taken in the middle of one.
	Disconnect
	// Disconnected has no payload.
	Disconnected
	// Open has no payload: the guest begins a stream. An id is not used again for 2^31 others.
	Open
	// Data is what a stream carries, 1 to MaxData bytes, never more than the other end has given room for.
	Data
	// Room is a number of bytes (4, big endian, not 0) that may be sent on a stream beside what could be sent before. A stream begins with
	// room for StreamWindow bytes in each direction, and its room never exceeds that.
	Room
	// EOF has no payload: this end sends no more Data on the stream. A stream over which both have sent it is done.
	EOF
	// Reset has no payload: the stream is done, and what it still carried is lost. Frames of a stream that is done are ignored.
	Reset
	// Terminal is JSON: a TerminalCall. It is answered like a Start; its output is that of a terminal, in Output frames of Stdout.
	Terminal
	// Input is what is typed into a terminal, 1 to MaxData bytes. What a program does not read is dropped beyond MaxTyped.
	Input
	// Resize is the new size of a terminal: rows and columns, each in two bytes, big endian.
	Resize
	// Taken is a number of bytes (4, big endian, not 0) of a terminal's output that the host has passed on. The guest sends at most
	// TerminalWindow bytes that have not been taken.
	Taken

	lastType = Taken
)

// Of terminals: the output that is under way, and the input that waits for a program, in bytes.
const (
	TerminalWindow = 256 << 10
	MaxTyped       = 1 << 20
)

// Of streams: the room that each direction begins with, what one Data frame holds at most, and how many there are at once.
const (
	StreamWindow = 64 << 10
	MaxData      = 16 << 10
	MaxStreams   = 256
)

// Frame is one message. Call is 0 for frames that belong to no call.
type Frame struct {
	Type    Type
	Call    uint32
	Payload []byte
}

// HelloInfo is the payload of Hello.
type HelloInfo struct {
	Version int `json:"version"`
	// Isolated says that code runs as another user than the guest. It is false only in tests.
	Isolated bool `json:"isolated"`
	// Notes are what the guest could not set up, in words for a log.
	Notes []string `json:"notes,omitempty"`
}

// Limits are what a call may take; 0 is no limit.
type Limits struct {
	// Memory is RLIMIT_AS in bytes.
	Memory int64 `json:"memory,omitempty"`
	// FileSize is RLIMIT_FSIZE in bytes.
	FileSize int64 `json:"file_size,omitempty"`
	// Processes is RLIMIT_NPROC.
	Processes int64 `json:"processes,omitempty"`
	// Output in bytes of the whole call; 0 drops everything.
	Output int64 `json:"output"`
	// Threads is how many threads numeric libraries start.
	Threads int `json:"threads,omitempty"`
}

// Kinds of a Start.
const (
	Python = "python"
	Bash   = "bash"
	Node   = "node"
	// Edit has an EditCall as Code, in JSON; its output on Stdout is one EditResult, in JSON.
	Edit = "edit"
)

// MaxSession caps the name of a session.
const MaxSession = 64

// StartCall is the payload of Start.
type StartCall struct {
	Kind string `json:"kind"`
	// Session names one of several of a kind, at most MaxSession bytes; "" is the default one.
	Session string            `json:"session,omitempty"`
	Code    string            `json:"code"`
	Dir     string            `json:"dir,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// TimeoutMS ends the call; 0 means none.
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
	Limits    Limits `json:"limits"`
	// Functions are names of functions that a Python program of the default session may call and wait for; Program is then the name by
	// which Resume finds it.
	Functions []string `json:"functions,omitempty"`
	Program   string   `json:"program,omitempty"`
}

// ResumeCall is the payload of Resume. The program's time goes on where it stopped.
type ResumeCall struct {
	Program string `json:"program"`
	// Results are those of all its calls. TimedOut raises TimeoutError for each of them instead.
	Results  []FunctionResult `json:"results,omitempty"`
	TimedOut bool             `json:"timed_out,omitempty"`
	// Interrupt raises KeyboardInterrupt in whatever program waits, and ends it within TimeoutMS, by force if need be.
	Interrupt bool   `json:"interrupt,omitempty"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
	Limits    Limits `json:"limits"`
}

// FunctionResult answers a FunctionCall. Error raises it as an exception.
type FunctionResult struct {
	ID    uint32 `json:"id"`
	Text  string `json:"text"`
	Error bool   `json:"error,omitempty"`
}

// The most that one Calls frame may have: calls, and bytes of arguments of all of them.
const (
	MaxCalls     = 100
	MaxArguments = 1 << 20
)

// CallsInfo is the payload of Calls.
type CallsInfo struct {
	Calls []FunctionCall `json:"calls"`
}

// FunctionCall is one call of a function. Arguments is a JSON object.
type FunctionCall struct {
	ID        uint32 `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Payloads of Refused that the host tells apart.
const (
	// RefusedWaiting: a program waits in the session.
	RefusedWaiting = "a program waits for results here"
	// RefusedGone: no program of that name waits.
	RefusedGone = "no such program waits here"
)

// WarmCall is the payload of Warm: start the kernel if it does not run, and import these modules. One that cannot be imported is left out.
type WarmCall struct {
	Modules   []string `json:"modules,omitempty"`
	TimeoutMS int64    `json:"timeout_ms,omitempty"`
	Limits    Limits   `json:"limits"`
}

// RenewCall is the payload of Renew. Fresh says that no program has run yet, so that seeds no program has chosen are renewed too, and
// folders in memory get the size TmpSize, in bytes; 0 leaves them as they are.
type RenewCall struct {
	Fresh   bool   `json:"fresh,omitempty"`
	TmpSize int64  `json:"tmp_size,omitempty"`
	Limits  Limits `json:"limits"`
}

// ConnectCall is the payload of Connect.
type ConnectCall struct {
	// Roots are the certificates in PEM that the host trusts, Trust those that were made for this sandbox. Programs trust both beside the image's.
	Roots string `json:"roots,omitempty"`
	Trust string `json:"trust,omitempty"`
}

// ConnectedInfo is the payload of Connected. Error says why there is no network, "" for none.
type ConnectedInfo struct {
	// Port is where programs find the proxy on 127.0.0.1.
	Port int `json:"port"`
	// Bundle is the path of the file with all certificates that programs trust.
	Bundle string `json:"bundle"`
	Error  string `json:"error,omitempty"`
}

// TerminalCall is the payload of Terminal: a shell on a terminal of its own. Interrupt and Kill hang it up.
type TerminalCall struct {
	Rows   uint16            `json:"rows"`
	Cols   uint16            `json:"cols"`
	Env    map[string]string `json:"env,omitempty"`
	Limits Limits            `json:"limits"`
}

// Values of CallResult.Status.
const (
	OK          = "ok"
	Failed      = "error"
	Timeout     = "timeout"
	Interrupted = "interrupted"
	Killed      = "killed"
)

// CallResult is the payload of Result.
type CallResult struct {
	Status          string `json:"status"`
	ExitCode        int    `json:"exit_code,omitempty"`
	Error           string `json:"error,omitempty"`
	Truncated       int64  `json:"truncated,omitempty"`
	KernelRestarted bool   `json:"kernel_restarted,omitempty"`
}

// Stream is the first byte of an Output frame.
type Stream byte

// DisplayText is a display that is text.
const (
	Stdout Stream = iota + 1
	Stderr
	Value
	DisplayText
)

// EncodeJSON makes a frame with a JSON payload.
func EncodeJSON(t Type, call uint32, v any) (Frame, error) {
	p, err := json.Marshal(v)
	return Frame{Type: t, Call: call, Payload: p}, err
}

// DecodeJSON reads the JSON payload of f into v.
func DecodeJSON(f Frame, v any) error {
	if err := json.Unmarshal(f.Payload, v); err != nil {
		return fmt.Errorf("proto: payload of frame type %d: %w", f.Type, err)
	}
	return nil
}

// DecodeOutput splits the payload of an Output frame. data is part of payload.
func DecodeOutput(payload []byte) (stream Stream, data []byte, err error) {
	if len(payload) == 0 || Stream(payload[0]) < Stdout || Stream(payload[0]) > DisplayText {
		return 0, nil, errors.New("proto: output frame without a known stream")
	}
	return Stream(payload[0]), payload[1:], nil
}

// DecodeDisplay is the inverse of EncodeDisplay. data is part of payload. The MIME type has letters, digits and "/+-." only.
func DecodeDisplay(payload []byte) (mime string, data []byte, err error) {
	if len(payload) == 0 || payload[0] == 0 || payload[0] > 100 || len(payload) < 1+int(payload[0]) {
		return "", nil, errors.New("proto: display frame without a type")
	}
	n := int(payload[0])
	for _, c := range payload[1 : 1+n] {
		if !mimeByte(c) {
			return "", nil, errors.New("proto: display frame with a bad type")
		}
	}
	return string(payload[1 : 1+n]), payload[1+n:], nil
}

func mimeByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '/' || c == '+' || c == '-' || c == '.'
}

// EncodeRoom is the payload of a Room frame.
func EncodeRoom(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// DecodeRoom is the inverse of EncodeRoom. What it returns is 1 to StreamWindow.
func DecodeRoom(payload []byte) (int, error) {
	if len(payload) != 4 {
		return 0, errors.New("proto: room frame without a number")
	}
	n := binary.BigEndian.Uint32(payload)
	if n == 0 || n > StreamWindow {
		return 0, fmt.Errorf("proto: room for %d bytes", n)
	}
	return int(n), nil
}
