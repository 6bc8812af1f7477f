package proto

// EditCall is what a call of kind Edit is to do: view, create, str_replace or insert, in Command. The pointers are set for the commands
// that need them.
type EditCall struct {
	Command string `json:"command"`
	// Path may have variables of the environment ($NAME, ${NAME}) and begin with ~/; a relative one is below the working directory.
	Path string `json:"path"`
	// ViewRange is empty for all, or the first line and the last one; the last may be missing or -1 for the file's last.
	ViewRange  []int   `json:"view_range,omitempty"`
	FileText   *string `json:"file_text,omitempty"`
	OldStr     *string `json:"old_str,omitempty"`
	NewStr     *string `json:"new_str,omitempty"`
	InsertLine *int    `json:"insert_line,omitempty"`
	InsertText *string `json:"insert_text,omitempty"`
}

// The values of EditResult.Error.
const (
	EditNotFound    = "file_not_found"
	EditInvalid     = "invalid_tool_input"
	EditUnavailable = "unavailable"
)

// EditResult is what came of an EditCall. Lines are counted from 1.
type EditResult struct {
	// Error is "" where it was done; Message then says why not, for the model.
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`

	// The rest has the meaning of turn.Edit.
	FileType   string `json:"file_type,omitempty"`
	Content    string `json:"content,omitempty"`
	StartLine  int    `json:"start_line,omitempty"`
	NumLines   int    `json:"num_lines,omitempty"`
	TotalLines int    `json:"total_lines,omitempty"`
	Updated    bool   `json:"updated,omitempty"`

	OldStart int      `json:"old_start,omitempty"`
	OldLines int      `json:"old_lines,omitempty"`
	NewStart int      `json:"new_start,omitempty"`
	NewLines int      `json:"new_lines,omitempty"`
	Hunk     []string `json:"hunk,omitempty"`

	// MIME and Data are an image's or a PDF's; Content is then empty.
	MIME string `json:"mime,omitempty"`
	Data []byte `json:"data,omitempty"`
}
