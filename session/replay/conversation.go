package replay

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// entry is a message in the terms of no provider: of the user, a system or the model, or the
// outputs of the tools that one request of the model called.
type entry struct {
	role   string // that of the row, or roleTool
	id     string // of the reply that it is from; empty for what was recorded
	blocks []block
}

const roleTool = "tool"

// callIDs are the ids of the calls of a conversation. Providers refuse a request in which two calls have the same.
type callIDs map[string]bool

// unique returns the id, or one made of it if a call has it or it is empty. What
// [anthropicID] makes of two of them is not the same either.
func (ids callIDs) unique(id string) string {
	name := id
	if id == "" {
		id, name = "call", "call_1"
	}
	for n := 2; ids[anthropicID(name)]; n++ {
		name = id + "_" + strconv.Itoa(n)
	}
	ids[anthropicID(name)] = true
	return name
}

func blocksOf(all []entry, kind blockKind) iter.Seq[*block] {
	return func(yield func(*block) bool) {
		for i := range all {
			for k := range all[i].blocks {
				if b := &all[i].blocks[k]; b.kind == kind && !yield(b) {
					return
				}
			}
		}
	}
}

type blockKind int

const (
	textBlock blockKind = iota
	reasoningBlock
	fileBlock
	callBlock
	resultBlock
	// stepBlock is before what a further request of the model brought, where one reply reports several.
	stepBlock
)

// block is a piece of an entry. Which fields are set follows from its kind.
type block struct {
	kind blockKind
	text string
	// id and name are those of a call, and of its result.
	id, name string
	// data is the input of a call, or the output of one that succeeded.
	data json.RawMessage
	// failed reports that the call did, and text is the error that the model got.
	failed bool
	// trace is what a recorded result reports besides; nil for those of a reply.
	trace *session.ToolTrace
	file  file
	// meta is the providerMetadata, by provider.
	meta map[string]json.RawMessage
}

// file is a file of a message. Its content is in base 64, empty where it is not in the URL.
type file struct{ name, mediaType, url, content string }

// entries are what a model gets of a message: one entry of a user, and for an answer, of each
// of its steps, the model's text and calls and the outputs of the tools.
func entries(m *document.Message, row *session.MessageAndParts, ids callIDs) []entry {
	if m.Compaction != nil {
		return []entry{{role: session.RoleUser, blocks: []block{{kind: textBlock, text: m.Compaction.Summary}}}}
	}
	raw := make(map[string]string, len(row.Parts))
	for i := range row.Parts {
		raw[row.Parts[i].ID] = row.Parts[i].DataJSON
	}
	var all []entry
	answered := entry{role: m.Role}
	results := entry{role: roleTool}
	flush := func() {
		for _, e := range []entry{answered, results} {
			if len(e.blocks) > 0 {
				all = append(all, e)
			}
		}
		answered.blocks, results.blocks = nil, nil
	}
	blank := false  // there is a text, and it is empty
	marked := false // sources that mark no steps show them by what follows a result
	for i := range m.Parts {
		marked = marked || m.Parts[i].Kind == document.KindStep
	}
	for _, p := range m.Parts {
		switch p.Kind {
		case document.KindStep:
			flush()
		case document.KindData: // the model was given what the client put around the user's words
			var data struct {
				Text string `json:"text"`
			}
			if p.Type == session.TypeContext && json.Unmarshal(p.Data, &data) == nil && data.Text != "" {
				answered.blocks = append(answered.blocks, block{kind: textBlock, text: data.Text})
			}
		case document.KindText, document.KindReasoning:
			if !marked && len(results.blocks) > 0 {
				flush()
			}
			if p.Kind == document.KindText && p.Text == "" { // some providers refuse it
				blank = true
				continue
			}
			kind := textBlock
			if p.Kind == document.KindReasoning {
				kind = reasoningBlock
			}
			answered.blocks = append(answered.blocks, block{kind: kind, text: p.Text, meta: metaOf(raw[p.ID])})
		case document.KindFile:
			answered.blocks = append(answered.blocks, block{kind: fileBlock, file: fileOf(p.File)})
		case document.KindTool:
			call, result := callOf(p.Tool, ids.unique(p.Tool.CallID))
			answered.blocks = append(answered.blocks, call)
			results.blocks = append(results.blocks, result)
		}
	}
	flush()
	if blank && len(all) == 0 && m.Role == session.RoleUser {
		return []entry{{role: m.Role, blocks: []block{{kind: textBlock}}}}
	}
	return all
}

// inputOf is the input of a call as the object that providers want. Some tools take a
// text or a list: that becomes a member of one.
func (b *block) inputOf() json.RawMessage {
	var text string
	switch {
	case b.data[0] == '{':
		return b.data
	case string(b.data) == "null":
		return json.RawMessage("{}")
	case b.data[0] == '"' && json.Unmarshal(b.data, &text) == nil:
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
			return json.RawMessage(text) // it was encoded twice
		}
	}
	raw, err := json.Marshal(map[string]json.RawMessage{"input": b.data})
	if err != nil {
		return json.RawMessage("{}") // what is not JSON is no input
	}
	return raw
}

// noResult is where the output of a call is not known, for providers take no call without one.
const noResult = "[the output of this call was not recorded]"

// What a model gets of a call that failed where no source reports how.
const (
	callFailed = "the call failed"
	callDenied = "the call was denied"
)

func callOf(c *document.ToolCall, id string) (call, result block) {
	call = block{kind: callBlock, id: id, name: c.Name, data: c.Input}
	if len(call.data) == 0 {
		call.data = json.RawMessage("{}")
	}
	result = block{kind: resultBlock, id: id, name: c.Name, trace: &session.ToolTrace{
		Kind: c.ACPKind, Denied: c.Denied, Truncated: c.Truncated, OutputPath: c.OutputPath, OutputSize: c.OutputSize,
		OutputSHA256: c.OutputSHA256, ErrorType: c.ErrorType,
	}}
	switch {
	case c.State == session.StateOutputError || c.Denied:
		result.failed, result.text = true, c.Error
		if c.Error == "" && c.Approval != nil && c.Approval.Reason != "" {
			result.text = c.Approval.Reason
		}
		if result.text == "" && len(c.Output) > 0 {
			result.text = plainText(c.Output) // some agents report a refusal as of an output
		}
		if result.text == "" {
			result.text = callFailed
			if c.Denied {
				result.text = callDenied
			}
		}
	case c.Open() || c.Withheld || c.Stub || len(c.Output) == 0:
		result.failed, result.text = true, noResult
	default:
		result.data = c.Output
	}
	return call, result
}

// outcome is what a model reads of a result: a text as it is, any other value as JSON.
func (b *block) outcome() string {
	if b.failed {
		return b.text
	}
	return plainText(b.data)
}

// plainText is a value as text: a string as it is, any other as compact JSON.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return s
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return string(raw)
	}
	return compact.String()
}

func metaOf(raw string) map[string]json.RawMessage {
	p, _ := session.ParseUIPart(raw) // what is not an object has none
	return p.ProviderMetadata
}

// fileOf is a file with the whole of its URL, which a timeline does not carry along.
// The content of a data: URL becomes base 64, as providers want it.
func fileOf(f *document.File) file {
	x := file{name: f.Name, mediaType: f.MediaType, url: cmp.Or(f.Content(), f.URL)}
	rest, ok := strings.CutPrefix(x.url, "data:")
	head, body, comma := strings.Cut(rest, ",")
	if !ok || !comma {
		return x
	}
	head, encoded := strings.CutSuffix(head, ";base64")
	mediaType, _, _ := strings.Cut(head, ";")
	x.mediaType = cmp.Or(x.mediaType, mediaType, "text/plain") // which is what a data: URL means without one
	if !encoded {
		text, err := url.PathUnescape(body)
		if err != nil {
			text = body // no escapes after all
		}
		body = base64.StdEncoding.EncodeToString([]byte(text))
	}
	x.content = body
	if body != "" {
		x.url = "data:" + x.mediaType + ";base64," + body
	}
	return x
}

func (f *file) text() (string, bool) {
	base, _, _ := strings.Cut(f.mediaType, ";")
	switch {
	case f.content == "":
		return "", false
	case strings.HasPrefix(base, "text/"), base == "application/json", base == "application/xml",
		base == "application/yaml":
		b, err := base64.StdEncoding.DecodeString(f.content)
		return string(b), err == nil && utf8.Valid(b)
	}
	return "", false
}

// filename is the name of the file, which OpenAI wants where the content is sent.
func (f *file) filename() string {
	switch {
	case f.name != "":
		return f.name
	case f.pdf():
		return "file.pdf"
	}
	return "file"
}

func (f *file) remote() bool {
	return strings.HasPrefix(f.url, "https://") || strings.HasPrefix(f.url, "http://")
}

func (f *file) image() bool { return strings.HasPrefix(f.mediaType, "image/") }

// recording reports that the file is one of sound or moving pictures.
func (f *file) recording() bool {
	return strings.HasPrefix(f.mediaType, "audio/") || strings.HasPrefix(f.mediaType, "video/")
}

func (f *file) pdf() bool { return f.mediaType == "application/pdf" }

// placeholder informs the model of a file whose content is not there, or that the provider does not take.
func (f *file) placeholder() string {
	name := f.name
	if name == "" && !strings.HasPrefix(f.url, "data:") {
		name = f.url
	}
	name = cmp.Or(name, f.mediaType)
	switch {
	case f.content != "":
		if name != f.mediaType {
			name += ", " + f.mediaType + ","
		}
		return "[the file " + name + " cannot be sent]"
	case f.remote():
		if name == f.url {
			return "[the file " + f.url + " cannot be sent]"
		}
		return "[the file " + name + " at " + f.url + " cannot be sent]"
	}
	return "[the file " + name + " was not recorded]"
}

// textOf is all text of the blocks. A provider may have given it in several pieces,
// for citations are between them, so nothing is put there.
func textOf(blocks []block) string {
	var text strings.Builder
	for i := range blocks {
		if blocks[i].kind == textBlock {
			text.WriteString(blocks[i].text)
		}
	}
	return text.String()
}
