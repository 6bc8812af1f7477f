package anthropic

import (
	"encoding/json"
	"reflect"
)

// Types of blocks that have a struct here.
const (
	TypeText             = "text"
	TypeImage            = "image"
	TypeDocument         = "document"
	TypeSearchResult     = "search_result"
	TypeThinking         = "thinking"
	TypeRedactedThinking = "redacted_thinking"
	TypeToolUse          = "tool_use"
	TypeToolResult       = "tool_result"
	TypeServerToolUse    = "server_tool_use"
	TypeContainerUpload  = "container_upload"

	TypeCodeResult       = "code_execution_tool_result"
	TypeBashResult       = "bash_code_execution_tool_result"
	TypeEditorResult     = "text_editor_code_execution_tool_result"
	TypeWebSearchResult  = "web_search_tool_result"
	TypeWebFetchResult   = "web_fetch_tool_result"
	TypeToolSearchResult = "tool_search_tool_result"
)

// Block is a piece of content: *Text, *Image, *Document, *SearchResult, *Thinking, *RedactedThinking, *ToolUse (also of a server tool),
// *ToolResult, *ServerResult, *ContainerUpload or *Raw.
type Block interface {
	// BlockType is the block's type.
	BlockType() string
}

// Blocks is an array of blocks.
type Blocks []Block

// UnmarshalJSON decodes each block by its type.
func (b *Blocks) UnmarshalJSON(data []byte) (err error) {
	*b, err = list(data, DecodeBlock)
	return err
}

// DecodeBlock decodes a block by its type.
func DecodeBlock(data []byte) (Block, error) {
	return union(data, newBlock, func(r *Raw) Block { return r })
}

func newBlock(kind string) Block {
	switch kind {
	case TypeText:
		return &Text{}
	case TypeImage:
		return &Image{}
	case TypeDocument:
		return &Document{}
	case TypeSearchResult:
		return &SearchResult{}
	case TypeThinking:
		return &Thinking{}
	case TypeRedactedThinking:
		return &RedactedThinking{}
	case TypeToolUse, TypeServerToolUse:
		return &ToolUse{}
	case TypeToolResult:
		return &ToolResult{}
	case TypeCodeResult, TypeBashResult, TypeEditorResult, TypeWebSearchResult, TypeWebFetchResult, TypeToolSearchResult:
		return &ServerResult{}
	case TypeContainerUpload:
		return &ContainerUpload{}
	}
	return nil
}

// Content is a string or blocks. The zero value is an empty array.
type Content struct {
	// Text is set for a string.
	Text   *string
	Blocks Blocks
}

// IsZero says that there is neither, not even an empty string or array.
func (c Content) IsZero() bool { return c.Text == nil && c.Blocks == nil }

// MarshalJSON writes the form that is set.
func (c Content) MarshalJSON() ([]byte, error) {
	switch {
	case c.Text != nil:
		return Marshal(*c.Text)
	case c.Blocks == nil:
		return []byte("[]"), nil
	}
	return Marshal(c.Blocks)
}

// UnmarshalJSON reads a string or blocks.
func (c *Content) UnmarshalJSON(data []byte) error {
	*c = Content{}
	switch {
	case len(data) > 0 && data[0] == '"':
		c.Text = new("")
		return json.Unmarshal(data, c.Text)
	case len(data) > 0 && data[0] == '[':
		return json.Unmarshal(data, &c.Blocks)
	}
	return &json.UnmarshalTypeError{Value: "neither a string nor an array", Type: reflect.TypeFor[Blocks]()}
}

// CacheControl marks the end of a prefix to be cached: ephemeral, with a ttl of 5m (the default) or 1h. A request may have four.
type CacheControl struct {
	Type  string `json:"type"`
	TTL   string `json:"ttl,omitzero"`
	Extra Extra
}

// Text is plain text. In answers it may cite.
type Text struct {
	Type         string        `json:"type"`
	Text         string        `json:"text"`
	Citations    []Citation    `json:"citations,omitzero"`
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	Extra        Extra
}

// Citation ties a text to its source. Type is char_location, page_location, content_block_location, search_result_location or
// web_search_result_location, and says which of the other fields it has.
type Citation struct {
	Type              string  `json:"type"`
	CitedText         string  `json:"cited_text"`
	DocumentIndex     *int    `json:"document_index,omitzero"`
	DocumentTitle     *string `json:"document_title,omitzero"`
	FileID            *string `json:"file_id,omitzero"`
	StartCharIndex    *int    `json:"start_char_index,omitzero"`
	EndCharIndex      *int    `json:"end_char_index,omitzero"`
	StartPageNumber   *int    `json:"start_page_number,omitzero"`
	EndPageNumber     *int    `json:"end_page_number,omitzero"`
	StartBlockIndex   *int    `json:"start_block_index,omitzero"`
	EndBlockIndex     *int    `json:"end_block_index,omitzero"`
	SearchResultIndex *int    `json:"search_result_index,omitzero"`
	Source            *string `json:"source,omitzero"`
	URL               *string `json:"url,omitzero"`
	Title             *string `json:"title,omitzero"`
	EncryptedIndex    *string `json:"encrypted_index,omitzero"`
	Extra             Extra
}

// Source is where an image or document comes from: base64 (MediaType, Data), url, file, text (MediaType, Data) or content.
type Source struct {
	Type      string  `json:"type"`
	MediaType string  `json:"media_type,omitzero"`
	Data      string  `json:"data,omitzero"`
	URL       string  `json:"url,omitzero"`
	FileID    string  `json:"file_id,omitzero"`
	Content   Content `json:"content,omitzero"`
	Extra     Extra
}

// Image is a picture.
type Image struct {
	Type         string        `json:"type"`
	Source       Source        `json:"source"`
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	Extra        Extra
}

// Document is a PDF or a text, by a user.
type Document struct {
	Type         string        `json:"type"`
	Source       Source        `json:"source"`
	Title        string        `json:"title,omitzero"`
	Context      string        `json:"context,omitzero"`
	Citations    *CitationsOn  `json:"citations,omitzero"`
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	Extra        Extra
}

// CitationsOn asks for citations.
type CitationsOn struct {
	Enabled *bool `json:"enabled,omitzero"`
	Extra   Extra
}

// SearchResult is what a search of the client's own found.
type SearchResult struct {
	Type         string        `json:"type"`
	Source       string        `json:"source"`
	Title        string        `json:"title"`
	Content      Blocks        `json:"content"`
	Citations    *CitationsOn  `json:"citations,omitzero"`
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	Extra        Extra
}

// Thinking is what the model thought. It is taken back only with its signature.
type Thinking struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
	Extra     Extra
}

// RedactedThinking is thinking that clients may not read.
type RedactedThinking struct {
	Type  string `json:"type"`
	Data  string `json:"data"`
	Extra Extra
}

// ToolUse is a call: tool_use of a client's tool, server_tool_use of a hosted one.
type ToolUse struct {
	Type         string          `json:"type"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"` // an object
	Caller       *Caller         `json:"caller,omitzero"`
	ToolsetName  string          `json:"toolset_name,omitzero"`
	CacheControl *CacheControl   `json:"cache_control,omitzero"`
	Extra        Extra
}

// Caller is who made a call: direct, or a program (code_execution_20250825, code_execution_20260120) that runs under ToolID.
type Caller struct {
	Type   string `json:"type"`
	ToolID string `json:"tool_id,omitzero"`
	Extra  Extra
}

// ToolResult is a client's answer to a tool_use.
type ToolResult struct {
	Type         string        `json:"type"`
	ToolUseID    string        `json:"tool_use_id"`
	Content      Content       `json:"content,omitzero"`
	IsError      *bool         `json:"is_error,omitzero"`
	ToolsetName  string        `json:"toolset_name,omitzero"`
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	Extra        Extra
}

// ContainerUpload puts an uploaded file into the container.
type ContainerUpload struct {
	Type         string        `json:"type"`
	FileID       string        `json:"file_id"`
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	Extra        Extra
}
