package anthropic

import (
	"encoding/json"
)

// ServerResult is the result of a server_tool_use; its type names the tool.
type ServerResult struct {
	Type         string        `json:"type"`
	ToolUseID    string        `json:"tool_use_id"`
	Content      ServerContent `json:"content"`
	Caller       *Caller       `json:"caller,omitzero"`
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	Extra        Extra
}

// ServerContent is what a hosted tool answered: one ResultContent, or JSON that is no object (web_search has an array).
type ServerContent struct {
	Result ResultContent
	JSON   json.RawMessage
}

// MarshalJSON writes the form that is set.
func (c ServerContent) MarshalJSON() ([]byte, error) {
	if c.Result != nil {
		return Marshal(c.Result)
	}
	return Marshal(c.JSON)
}

// UnmarshalJSON reads any JSON.
func (c *ServerContent) UnmarshalJSON(data []byte) error {
	*c = ServerContent{}
	if data[0] != '{' {
		c.JSON = append(c.JSON, data...)
		return nil
	}
	var err error
	c.Result, err = union(data, newResult, func(r *Raw) ResultContent { return r })
	return err
}

// Types of results that have a struct here.
const (
	TypeCodeOutput    = "code_execution_result"
	TypeBashOutput    = "bash_code_execution_result"
	TypeEncryptedCode = "encrypted_code_execution_result"
	TypeEditorView    = "text_editor_code_execution_view_result"
	TypeEditorCreate  = "text_editor_code_execution_create_result"
	TypeEditorReplace = "text_editor_code_execution_str_replace_result"
	TypeCodeError     = "code_execution_tool_result_error"
	TypeBashError     = "bash_code_execution_tool_result_error"
	TypeEditorError   = "text_editor_code_execution_tool_result_error"
)

// ResultContent is the content of a ServerResult: *Execution, *EditorView, *EditorCreate, *EditorReplace, *ResultError or *Raw.
type ResultContent interface {
	// ResultType is the content's type.
	ResultType() string
}

func newResult(kind string) ResultContent {
	switch kind {
	case TypeCodeOutput, TypeBashOutput, TypeEncryptedCode:
		return &Execution{}
	case TypeEditorView:
		return &EditorView{}
	case TypeEditorCreate:
		return &EditorCreate{}
	case TypeEditorReplace:
		return &EditorReplace{}
	case TypeCodeError, TypeBashError, TypeEditorError:
		return &ResultError{}
	}
	return nil
}

// Execution is what a program or command put out. A failure is one with a ReturnCode, no ResultError.
type Execution struct {
	Type            string          `json:"type"`
	Stdout          *string         `json:"stdout,omitzero"`
	EncryptedStdout *string         `json:"encrypted_stdout,omitzero"`
	Stderr          string          `json:"stderr"`
	ReturnCode      int             `json:"return_code"`
	Content         []ExecutionFile `json:"content"`
	Extra           Extra
}

// ExecutionFile is a file that a program left in $OUTPUT_DIR: code_execution_output or bash_code_execution_output.
type ExecutionFile struct {
	Type   string `json:"type"`
	FileID string `json:"file_id"`
	Extra  Extra
}

// EditorView is a file, or the part of it that was asked for.
type EditorView struct {
	Type       string `json:"type"`
	FileType   string `json:"file_type"` // text, image or pdf
	Content    string `json:"content"`
	NumLines   *int   `json:"num_lines,omitzero"`
	StartLine  *int   `json:"start_line,omitzero"`
	TotalLines *int   `json:"total_lines,omitzero"`
	Extra      Extra
}

// EditorCreate says whether the file was there before.
type EditorCreate struct {
	Type         string `json:"type"`
	IsFileUpdate bool   `json:"is_file_update"`
	Extra        Extra
}

// EditorReplace is the hunk of a unified diff.
type EditorReplace struct {
	Type     string   `json:"type"`
	OldStart *int     `json:"old_start,omitzero"`
	OldLines *int     `json:"old_lines,omitzero"`
	NewStart *int     `json:"new_start,omitzero"`
	NewLines *int     `json:"new_lines,omitzero"`
	Lines    []string `json:"lines,omitzero"`
	Extra    Extra
}

// ResultError is a hosted tool that could not run.
type ResultError struct {
	Type         string  `json:"type"`
	ErrorCode    string  `json:"error_code"`
	ErrorMessage *string `json:"error_message,omitzero"`
	Extra        Extra
}
