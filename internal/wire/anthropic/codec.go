package anthropic

// Every object of the protocol reads and writes itself by its shape, fields that it does not know included (see Extra).

// MarshalJSON writes the object.
func (v CacheControl) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *CacheControl) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Text) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Text) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Citation) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Citation) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Source) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Source) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Image) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Image) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Document) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Document) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v CitationsOn) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *CitationsOn) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v SearchResult) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *SearchResult) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Thinking) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Thinking) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v RedactedThinking) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *RedactedThinking) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ToolUse) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ToolUse) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Caller) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Caller) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ToolResult) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ToolResult) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ContainerUpload) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ContainerUpload) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ServerResult) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ServerResult) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Execution) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Execution) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ExecutionFile) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ExecutionFile) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v EditorView) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *EditorView) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v EditorCreate) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *EditorCreate) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v EditorReplace) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *EditorReplace) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ResultError) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ResultError) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Request) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Request) UnmarshalJSON(data []byte) error {
	if nested(data) > maxNested {
		return &FieldError{Path: "messages", Err: ErrTooDeep}
	}
	return decode(data, v)
}

// MarshalJSON writes the object.
func (v Message) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Message) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Tool) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Tool) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ToolChoice) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ToolChoice) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ThinkingConfig) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ThinkingConfig) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v OutputConfig) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *OutputConfig) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Format) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Format) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Metadata) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Metadata) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Container) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Container) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v SkillRef) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *SkillRef) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Response) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Response) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v StopDetails) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *StopDetails) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Usage) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Usage) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v CacheCreation) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *CacheCreation) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v OutputTokensDetails) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *OutputTokensDetails) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ErrorBody) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ErrorBody) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Error) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Error) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v MessageStart) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *MessageStart) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v BlockStart) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *BlockStart) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v BlockDelta) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *BlockDelta) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v BlockStop) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *BlockStop) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v MessageDelta) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *MessageDelta) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Ending) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Ending) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v Mark) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *Mark) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v TextDelta) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *TextDelta) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v InputDelta) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *InputDelta) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v ThinkingDelta) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *ThinkingDelta) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v SignatureDelta) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *SignatureDelta) UnmarshalJSON(data []byte) error { return decode(data, v) }

// MarshalJSON writes the object.
func (v CitationsDelta) MarshalJSON() ([]byte, error) { return encode(v) }

// UnmarshalJSON reads the object.
func (v *CitationsDelta) UnmarshalJSON(data []byte) error { return decode(data, v) }
