package replay

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// entry is a message in the terms of no provider: of the user, a system or the model. What tools put out is at the calls.
type entry struct {
	role   string // that of the row
	id     string // of the reply that it is from; empty for what was recorded
	blocks []block
}

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

// callsOf yields the calls of entries.
func callsOf(all []entry) iter.Seq[*block] {
	return func(yield func(*block) bool) {
		for i := range all {
			for k := range all[i].blocks {
				if b := &all[i].blocks[k]; b.kind == callBlock && !yield(b) {
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
	// stepBlock is before what a further request of the model brought, where one reply reports several.
	stepBlock
)

// block is a piece of an entry. Which fields are set follows from its kind.
type block struct {
	kind blockKind
	text string
	// id, name and input are those of a call, and result what came of it, nil where nothing has.
	id, name string
	input    json.RawMessage
	result   *result
	file     file
	// meta is the providerMetadata, by provider.
	meta map[string]json.RawMessage
}

// result is the output of a call or, if it failed, the error that the model got.
type result struct {
	failed bool
	text   string
	output json.RawMessage
	// trace is what a recorded result reports besides; nil for those of a reply.
	trace *session.ToolTrace
}

// file is a file of a message. Its content is in base 64, empty where it is not in the URL.
type file struct{ name, mediaType, url, content string }

// entries are what a model gets of a message: one entry of a user, and for an answer, one of each of its steps.
func entries(m *document.Message, row *session.MessageAndParts, ids callIDs) []entry {
	if m.Compaction != nil {
		return []entry{{role: session.RoleUser, blocks: []block{{kind: textBlock, text: m.Compaction.Summary}}}}
	}
	raw := make(map[string]string, len(row.Parts))
	for i := range row.Parts {
		raw[row.Parts[i].ID] = row.Parts[i].DataJSON
	}
	var all []entry
	step := entry{role: m.Role}
	flush := func() {
		if len(step.blocks) > 0 {
			all = append(all, step)
		}
		step.blocks = nil
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
			if text := gjson.GetBytes(p.Data, "text").String(); p.Type == session.TypeContext && text != "" {
				step.blocks = append(step.blocks, block{kind: textBlock, text: text})
			}
		case document.KindText, document.KindReasoning:
			if !marked && slices.ContainsFunc(step.blocks, func(b block) bool { return b.kind == callBlock }) {
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
			data, _ := session.ParseUIPart(raw[p.ID]) // what is not an object has no metadata
			step.blocks = append(step.blocks, block{kind: kind, text: p.Text, meta: data.ProviderMetadata})
		case document.KindFile:
			step.blocks = append(step.blocks, block{kind: fileBlock, file: fileOf(p.File)})
		case document.KindTool:
			step.blocks = append(step.blocks, block{kind: callBlock, id: ids.unique(p.Tool.CallID), name: p.Tool.Name,
				input: orEmpty(p.Tool.Input), result: resultOfCall(p.Tool)})
		}
	}
	flush()
	if blank && len(all) == 0 && m.Role == session.RoleUser {
		return []entry{{role: m.Role, blocks: []block{{kind: textBlock}}}}
	}
	return all
}

// orEmpty is the input of a call, an empty object where none is known.
func orEmpty(input json.RawMessage) json.RawMessage {
	if len(input) == 0 {
		return json.RawMessage("{}")
	}
	return input
}

// objectOf is the input of a call as the object that providers want. Some tools take a
// text or a list: that becomes a member of one.
func objectOf(input json.RawMessage) json.RawMessage {
	switch {
	case input[0] == '{':
		return input
	case string(input) == "null":
		return json.RawMessage("{}")
	}
	raw, err := json.Marshal(map[string]json.RawMessage{"input": input})
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

func resultOfCall(c *document.ToolCall) *result {
	r := &result{trace: &session.ToolTrace{
		Kind: c.ACPKind, Denied: c.Denied, Truncated: c.Truncated, OutputPath: c.OutputPath, OutputSize: c.OutputSize,
		OutputSHA256: c.OutputSHA256, ErrorType: c.ErrorType,
	}}
	switch {
	case c.State == session.StateOutputError || c.Denied:
		otherwise := callFailed
		if c.Denied {
			otherwise = callDenied
		}
		// Some agents report a refusal as of an output.
		r.failed, r.text = true, cmp.Or(c.Error, session.Deref(c.Approval).Reason, plainText(c.Output), otherwise)
	case c.Open() || c.Withheld || c.Stub || len(c.Output) == 0:
		r.failed, r.text = true, noResult
	default:
		r.output = c.Output
	}
	return r
}

// String is what a model reads of a result: a text as it is, any other value as JSON.
func (r *result) String() string {
	if r.failed {
		return r.text
	}
	return plainText(r.output)
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
	name := cmp.Or(f.name, f.mediaType)
	if f.remote() {
		name = f.url
	}
	if f.content == "" && !f.remote() {
		return "[the file " + name + " was not recorded]"
	}
	return "[the file " + name + " cannot be sent]"
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
