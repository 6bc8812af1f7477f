package turn

import (
	"encoding/json"
	"fmt"
)

// tagged is the stored form of an item or a part.
type tagged struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
	Parts []tagged        `json:"parts,omitempty"`
}

// MarshalItems encodes items for the store. The form is ours and read back only by UnmarshalItems.
func MarshalItems(items []Item) ([]byte, error) {
	out := make([]tagged, 0, len(items))
	for _, it := range items {
		t, err := tagItem(it)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return json.Marshal(out)
}

// UnmarshalItems is the inverse of MarshalItems.
func UnmarshalItems(data []byte) ([]Item, error) {
	var in []tagged
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, err
	}
	items := make([]Item, 0, len(in))
	for _, t := range in {
		it, err := untagItem(t)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}

func tagItem(it Item) (tagged, error) {
	switch v := it.(type) {
	case Message:
		return tag("message", v, v.Parts)
	case Reasoning:
		return tag("reasoning", v, nil)
	case Call:
		return tag("call", v, nil)
	case Result:
		return tag("result", v, v.Parts)
	case HostedCall:
		return tag("hosted_call", v, nil)
	case Block:
		return tag("block", v, nil)
	}
	return tagged{}, fmt.Errorf("turn: unknown item %T", it)
}

func tag(name string, v any, parts []Part) (tagged, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return tagged{}, err
	}
	t := tagged{Type: name, Value: raw}
	for _, p := range parts {
		pt, err := tag(partName(p), p, nil)
		if err != nil {
			return tagged{}, err
		}
		t.Parts = append(t.Parts, pt)
	}
	return t, nil
}

func partName(p Part) string {
	switch p.(type) {
	case Text:
		return "text"
	case Refusal:
		return "refusal"
	case Image:
		return "image"
	case Document:
		return "document"
	default:
		return "foreign"
	}
}

func untagItem(t tagged) (Item, error) {
	parts := make([]Part, 0, len(t.Parts))
	for _, pt := range t.Parts {
		p, err := untagPart(pt)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	switch t.Type {
	case "message":
		v, err := decode[Message](t)
		v.Parts = parts
		return v, err
	case "reasoning":
		return decode[Reasoning](t)
	case "call":
		return decode[Call](t)
	case "result":
		v, err := decode[Result](t)
		v.Parts = parts
		return v, err
	case "hosted_call":
		return decode[HostedCall](t)
	case "block":
		return decode[Block](t)
	}
	return nil, fmt.Errorf("turn: unknown stored item %q", t.Type)
}

func untagPart(t tagged) (Part, error) {
	switch t.Type {
	case "text":
		return decode[Text](t)
	case "refusal":
		return decode[Refusal](t)
	case "image":
		return decode[Image](t)
	case "document":
		return decode[Document](t)
	case "foreign":
		return decode[Foreign](t)
	}
	return nil, fmt.Errorf("turn: unknown stored part %q", t.Type)
}

func decode[T any](t tagged) (T, error) {
	var v T
	err := json.Unmarshal(t.Value, &v)
	return v, err
}
