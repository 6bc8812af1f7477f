// Package sse writes and reads server-sent events: one frame is an optional event name and data. It knows nothing of what the data
// means. Surfaces write with it, providers read with it; it imports nothing of this project.
package sse

// Event is one frame.
type Event struct {
	// Name is the event: field, "" for a frame that has only data.
	Name string
	// Data is the payload. Line breaks in it are framed as several data: lines and come back as line feeds.
	Data []byte
}
