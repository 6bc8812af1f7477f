package anthropic

// BlockType is the block's type.
func (v *Text) BlockType() string { return v.Type }

// BlockType is the block's type.
func (v *Image) BlockType() string { return v.Type }

// BlockType is the block's type.
func (v *Document) BlockType() string { return v.Type }

// BlockType is the block's type.
func (v *SearchResult) BlockType() string { return v.Type }

// BlockType is the block's type.
func (v *Thinking) BlockType() string { return v.Type }

// BlockType is the block's type.
func (v *RedactedThinking) BlockType() string { return v.Type }

// BlockType is the block's type.
func (v *ToolUse) BlockType() string { return v.Type }

// BlockType is the block's type.
func (v *ToolResult) BlockType() string { return v.Type }

// BlockType is the block's type.
func (v *ServerResult) BlockType() string { return v.Type }

// BlockType is the block's type.
func (v *ContainerUpload) BlockType() string { return v.Type }

// ResultType is the content's type.
func (v *Execution) ResultType() string { return v.Type }

// ResultType is the content's type.
func (v *EditorView) ResultType() string { return v.Type }

// ResultType is the content's type.
func (v *EditorCreate) ResultType() string { return v.Type }

// ResultType is the content's type.
func (v *EditorReplace) ResultType() string { return v.Type }

// ResultType is the content's type.
func (v *ResultError) ResultType() string { return v.Type }

// EventType is the event's type.
func (v *MessageStart) EventType() string { return v.Type }

// EventType is the event's type.
func (v *BlockStart) EventType() string { return v.Type }

// EventType is the event's type.
func (v *BlockDelta) EventType() string { return v.Type }

// EventType is the event's type.
func (v *BlockStop) EventType() string { return v.Type }

// EventType is the event's type.
func (v *MessageDelta) EventType() string { return v.Type }

// EventType is the event's type.
func (v *Mark) EventType() string { return v.Type }

// EventType is the event's type.
func (v *ErrorBody) EventType() string { return v.Type }

// DeltaType is the delta's type.
func (v *TextDelta) DeltaType() string { return v.Type }

// DeltaType is the delta's type.
func (v *InputDelta) DeltaType() string { return v.Type }

// DeltaType is the delta's type.
func (v *ThinkingDelta) DeltaType() string { return v.Type }

// DeltaType is the delta's type.
func (v *SignatureDelta) DeltaType() string { return v.Type }

// DeltaType is the delta's type.
func (v *CitationsDelta) DeltaType() string { return v.Type }
