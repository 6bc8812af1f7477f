package oaichat

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// The flex types read a scalar of any JSON type and never fail: a server that sends a number for an id, or null for a name, is still
// understood.

// flexString is a string, the text of a number or boolean, or "".
type flexString string

func (s *flexString) UnmarshalJSON(data []byte) error {
	*s = ""
	switch {
	case isNull(data) || data[0] == '{' || data[0] == '[':
	case data[0] == '"':
		var v string
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		*s = flexString(v)
	default:
		*s = flexString(data)
	}
	return nil
}

// flexInt is an integer, also written as a float or a string, or 0.
type flexInt int

func (i *flexInt) UnmarshalJSON(data []byte) error {
	*i = 0
	if f, err := strconv.ParseFloat(string(bytes.Trim(data, `"`)), 64); err == nil && f > -1e15 && f < 1e15 {
		*i = flexInt(f)
	}
	return nil
}

// flexArguments is a string, or the text of any other JSON value; null is "".
type flexArguments string

func (a *flexArguments) UnmarshalJSON(data []byte) error {
	*a = ""
	if isNull(data) {
		return nil
	}
	if data[0] != '"' {
		*a = flexArguments(data)
		return nil
	}
	var v string
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*a = flexArguments(v)
	return nil
}
