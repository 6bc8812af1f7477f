package messages

// The members of the sets, and what they take: anthropic-sdk-go v2, types Computer...Input and Browser...Input.

const (
	pixels   = "x and y in pixels, from the left and the top edge."
	heldKeys = "Keys to hold down meanwhile, such as ctrl or ctrl+shift."
)

func click(name, text string) member {
	return member{name: name, text: text, schema: object(map[string]schema{
		"coordinate": wholes(2, pixels), "text": {Type: "string", Description: heldKeys},
	})}
}

var computerMembers = []member{
	{name: "screenshot", text: "Takes a picture of the screen.", schema: object(nil)},
	click("left_click", "Clicks the left button, where the mouse is or at a point."),
	click("right_click", "Clicks the right button, where the mouse is or at a point."),
	click("middle_click", "Clicks the middle button, where the mouse is or at a point."),
	click("double_click", "Clicks the left button twice, where the mouse is or at a point."),
	click("triple_click", "Clicks the left button three times, where the mouse is or at a point."),
	{name: "left_click_drag", text: "Drags with the left button from one point to another.", schema: object(map[string]schema{
		"start_coordinate": wholes(2, pixels), "coordinate": wholes(2, pixels), "text": text(heldKeys),
	}, "start_coordinate", "coordinate")},
	{name: "left_mouse_down", text: "Presses the left button and holds it.", schema: object(nil)},
	{name: "left_mouse_up", text: "Lets the left button go.", schema: object(nil)},
	{name: "mouse_move", text: "Moves the mouse to a point.", schema: object(map[string]schema{"coordinate": wholes(2, pixels)}, "coordinate")},
	{name: "cursor_position", text: "Says where the mouse is.", schema: object(nil)},
	{name: "scroll", text: "Turns the wheel.", schema: object(map[string]schema{
		"scroll_direction": oneOf("Where to.", "up", "down", "left", "right"), "scroll_amount": whole("How many clicks of the wheel."),
		"coordinate": wholes(2, pixels), "text": text(heldKeys),
	}, "scroll_direction", "scroll_amount")},
	{name: "type", text: "Types a text.", schema: object(map[string]schema{"text": text("The text.")}, "text")},
	{name: "key", text: "Presses a key or several together.", schema: object(map[string]schema{
		"text": text("The key or keys, such as Return or ctrl+c."), "repeat": whole("How often; 1 if left out."),
	}, "text")},
	{name: "hold_key", text: "Holds a key or several down for a time.", schema: object(map[string]schema{
		"text": text("The key or keys."), "duration": whole("Seconds."),
	}, "text", "duration")},
	{name: "wait", text: "Waits.", schema: object(map[string]schema{"duration": whole("Seconds.")}, "duration")},
	{name: "zoom", text: "Takes a picture of a part of the screen in full detail.", schema: object(map[string]schema{
		"region": wholes(4, "x0, y0, x1, y1."),
	}, "region")},
}

// A target is a point, or an element that read_page or find gave a reference to.
var (
	pointTarget = schema{
		Type: "object", Description: "A point in the viewport.",
		Properties: map[string]schema{"type": oneOf("", "coordinate"), "x": whole(""), "y": whole("")}, Required: []string{"type", "x", "y"},
	}
	elementTarget = schema{
		Type: "object", Description: "An element, by its reference of read_page or find.",
		Properties: map[string]schema{"type": oneOf("", "ref"), "ref": text("")}, Required: []string{"type", "ref"},
	}
	anyTarget = schema{Description: "Where to act.", AnyOf: []schema{pointTarget, elementTarget}}
)

// inTab is an action of the browser: all but a few take the tab to act on.
func inTab(name, about string, properties map[string]schema, required ...string) member {
	all := map[string]schema{"tab_id": text("The tab to act on; the active one if left out.")}
	for k, v := range properties {
		all[k] = v
	}
	return member{name: name, text: about, schema: object(all, required...)}
}

func clickAt(name, about string) member {
	return inTab(name, about, map[string]schema{"target": anyTarget, "modifiers": text(heldKeys)}, "target")
}

var browserMembers = []member{
	inTab("screenshot", "Takes a picture of the page.", nil),
	inTab("navigate", "Opens an address.", map[string]schema{"url": text("The address, or back, forward or reload.")}, "url"),
	inTab("read_page", "Returns the page as a tree of elements, each with a reference.", map[string]schema{
		"filter": oneOf("interactive: elements to act on only; all: those outside of the viewport too.", "all", "interactive"),
		"ref":    text("Read only what is below this element."), "depth": whole("How deep; 15 if left out."),
	}),
	inTab("find", "Finds elements by a description.", map[string]schema{"query": text("What to find.")}, "query"),
	inTab("get_page_text", "Returns the text of the page.", nil),
	clickAt("left_click", "Clicks."),
	clickAt("right_click", "Clicks the right button."),
	clickAt("middle_click", "Clicks the middle button."),
	clickAt("double_click", "Clicks twice."),
	clickAt("triple_click", "Clicks three times."),
	inTab("hover", "Moves the mouse over something.", map[string]schema{"target": anyTarget}, "target"),
	inTab("mouse_move", "Moves the mouse.", map[string]schema{"target": pointTarget}, "target"),
	inTab("left_mouse_down", "Presses the left button and holds it.", map[string]schema{"target": pointTarget}, "target"),
	inTab("left_mouse_up", "Lets the left button go.", map[string]schema{"target": pointTarget}, "target"),
	inTab("left_click_drag", "Drags from one point to another.", map[string]schema{"from": pointTarget, "target": pointTarget}, "from", "target"),
	inTab("scroll", "Turns the wheel.", map[string]schema{
		"scroll_direction": oneOf("Where to.", "up", "down", "left", "right"), "target": pointTarget,
		"scroll_amount": whole("How many clicks of the wheel, 1 to 10; 3 if left out."),
	}, "scroll_direction", "target"),
	inTab("scroll_to", "Scrolls until an element can be seen.", map[string]schema{"target": elementTarget}, "target"),
	inTab("type", "Types a text.", map[string]schema{"text": text("The text.")}, "text"),
	inTab("key", "Presses keys.", map[string]schema{
		"text": text("A key, several together, or a sequence with spaces between."), "repeat": whole("How often; 1 if left out."),
	}, "text"),
	inTab("hold_key", "Holds keys down for a time.", map[string]schema{
		"text": text("The key or keys."), "duration": number("Seconds, 30 at most."),
	}, "text", "duration"),
	inTab("form_input", "Sets the value of a form's field.", map[string]schema{
		"target": elementTarget,
		"value":  {Description: "The value.", AnyOf: []schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}},
	}, "target", "value"),
	inTab("file_upload", "Gives files to a form's field.", map[string]schema{
		"target": elementTarget,
		"paths":  {Type: "array", Items: &schema{Type: "string"}, Description: "Paths on the machine that runs the browser."},
		"document_ids": {
			Type: "array", Items: &schema{Type: "string"}, Description: "References to files that have been made ready.",
		},
	}, "target"),
	inTab("javascript_exec", "Runs JavaScript in the page.", map[string]schema{"text": text("The code.")}, "text"),
	inTab("read_console", "Returns what the page wrote to the console.", nil),
	inTab("read_network", "Returns the requests that the page made.", nil),
	inTab("wait", "Waits.", map[string]schema{"duration": number("Seconds, 30 at most.")}, "duration"),
	inTab("zoom", "Takes a picture of a part of the page in full detail.", map[string]schema{"region": wholes(4, "x0, y0, x1, y1.")}, "region"),
	{name: "list_tabs", text: "Lists the tabs.", schema: object(nil)},
	{name: "new_tab", text: "Opens a tab.", schema: object(nil)},
	{name: "switch_tab", text: "Makes a tab the active one.", schema: object(map[string]schema{"tab_id": text("The tab.")}, "tab_id")},
	{name: "close_tab", text: "Closes a tab.", schema: object(map[string]schema{"tab_id": text("The tab.")}, "tab_id")},
}
