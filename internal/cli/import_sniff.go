package cli

import (
	"bytes"
	"encoding/json"
	"slices"
)

// sniffLines is how many lines of a file are looked at, for the first may be
// damaged, or say nothing that the format is known by.
const sniffLines = 32

// sniffJSON makes a test of JSON objects one of files: JSON lines, an array of
// objects, or one object, of which head may hold the beginning only.
func sniffJSON(looks func(keys map[string]string) bool) func(head []byte) bool {
	return func(head []byte) bool {
		head = bytes.TrimPrefix(head, []byte("\uFEFF"))
		for range sniffLines {
			head = bytes.TrimLeft(head, " \t\r\n")
			if len(head) == 0 || head[0] != '{' && head[0] != '[' {
				return false
			}
			if looks(firstObject(head)) {
				return true
			}
			end := bytes.IndexByte(head, '\n')
			if end < 0 {
				return false
			}
			head = head[end:]
		}
		return false
	}
}

// firstObject returns the keys of the first JSON object in head, which may be cut
// off, with their values where they are strings, and else what they begin with: {,
// [ or nothing.
func firstObject(head []byte) map[string]string {
	keys := make(map[string]string)
	d := json.NewDecoder(bytes.NewReader(head))
	d.UseNumber()
	token, err := d.Token()
	if token == json.Delim('[') {
		token, err = d.Token()
	}
	if err != nil || token != json.Delim('{') {
		return keys
	}
	for {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return keys
		}
		value, err := d.Token()
		if err != nil {
			return keys
		}
		switch v := value.(type) {
		case string:
			keys[name] = v
		case json.Delim:
			keys[name] = v.String()
			for depth := 1; depth > 0; {
				token, err := d.Token()
				if err != nil {
					return keys
				}
				switch token {
				case json.Delim('{'), json.Delim('['):
					depth++
				case json.Delim('}'), json.Delim(']'):
					depth--
				}
			}
		default:
			keys[name] = ""
		}
	}
}

func looksJSONL(keys map[string]string) bool {
	return keys["data"] == "{" && slices.Contains([]string{"session", "message", "part"}, keys["type"])
}

func looksJSON(keys map[string]string) bool { return keys["session"] == "{" }

func looksAgentdbg(keys map[string]string) bool {
	_, version := keys["spec_version"]
	_, run := keys["run_id"]
	return version && (run || keys["run"] == "{" || keys["events"] == "[")
}

func looksSkillet(keys map[string]string) bool {
	return slices.Contains([]string{"user_message", "step", "final_result"}, keys["kind"])
}

func looksACP(keys map[string]string) bool {
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { _, ok := keys[name]; return !ok })
	}
	return keys["jsonrpc"] == "2.0" || has("_direction") || has("direction", "json") || has("direction", "message") ||
		has("from", "to") && slices.Contains([]string{"request", "response", "notification"}, keys["type"])
}
