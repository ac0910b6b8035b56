package cli

import (
	"bytes"
	"encoding/json"
	"slices"
)

// head is how a file begins, which its format is known by. The objects in it are
// read once for all formats.
type head struct {
	text    []byte
	objects []map[string]string // what is read of them
	rest    []byte              // what is not yet
}

func newHead(text []byte) *head {
	return &head{text: text, rest: bytes.TrimPrefix(text, []byte("\uFEFF"))}
}

// format is the one that claims the file first, nil where none does.
func (h *head) format() *importFormat {
	for i := range importFormats {
		if f := &importFormats[i]; f.sniff != nil && f.sniff(h) {
			return f
		}
	}
	return nil
}

// sniffText makes a test of bytes one of files.
func sniffText(looks func(text []byte) bool) func(*head) bool {
	return func(h *head) bool { return looks(h.text) }
}

// sniffJSON makes a test of JSON objects one of files: JSON lines, an array of
// objects, or one object, of which the head may hold the beginning only.
func sniffJSON(looks func(keys map[string]string) bool) func(*head) bool {
	return func(h *head) bool {
		for n := 0; ; n++ {
			if n == len(h.objects) && !h.next() {
				return false
			}
			if looks(h.objects[n]) {
				return true
			}
		}
	}
}

// sniffLines is how many lines of a file are looked at, for the first may be
// damaged, or say nothing that the format is known by.
const sniffLines = 32

// next reads a further object, and says whether there is one.
func (h *head) next() bool {
	h.rest = bytes.TrimLeft(h.rest, " \t\r\n")
	if len(h.objects) == sniffLines || len(h.rest) == 0 || h.rest[0] != '{' && h.rest[0] != '[' {
		h.rest = nil
		return false
	}
	h.objects = append(h.objects, firstObject(h.rest))
	_, h.rest, _ = bytes.Cut(h.rest, []byte("\n"))
	return true
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
