// Skillet: these files read and write the conversations of skilled_crew's skillet: its replay log, which is the
// history, and its session store, which holds the items that the model is sent again. Both are kept by user and
// session name, the log under names that are cut to [a-zA-Z0-9_-]. docs/formats.md lists what becomes what.

package formats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
)

const (
	skilletName         = "skillet"                // the agent, a user without a name, and the key of metadata_json
	skilletLogsDir      = ".agent_session_logs"    // with <user>/<session>.jsonl
	skilletDatabaseFile = ".agent_sessions.sqlite" // beside it
	skilletContentPart  = "data-content"           // content of a message that has no part of its own
)

// skilletNames identify a conversation. A user's id is an e-mail address.
type skilletNames struct{ UserID, SessionName string }

var skilletUnsafeRun = lazy.Regexp(`[^a-zA-Z0-9_-]+`)

// skilletSanitize returns a name as it is in a log's path. Different names may be one there.
func skilletSanitize(name string) string {
	return strings.Trim(skilletUnsafeRun().ReplaceAllString(strings.TrimSpace(name), "_"), "_")
}

// sanitized are the names as they are in a log's path.
func (k skilletNames) sanitized() skilletNames {
	return skilletNames{skilletSanitize(k.UserID), skilletSanitize(k.SessionName)}
}

// sessionID returns the id of the conversation's session, the same whether it is read from the log or from the store.
func (k skilletNames) sessionID() string {
	safe := k.sanitized()
	return spans.DeriveID(spans.PrefixSession, 0, skilletName, safe.UserID, safe.SessionName)
}

// skilletNamesOf returns the names that a session is written under. One without a name has its id, or if the log's path
// cannot hold the id exactly, what it can hold of it, and a hash.
func skilletNamesOf(s *session.Session) skilletNames {
	meta := rows.Read(s.MetadataJSON)
	own := meta.Object(skilletName)
	k := skilletNames{UserID: cmp.Or(meta.Text("user_id"), own.Text("user")), SessionName: own.Text("session_name")}
	if skilletSanitize(k.UserID) == "" {
		k.UserID = skilletName
	}
	if skilletSanitize(k.SessionName) == "" {
		name := skilletSanitize(s.ID)
		if k.SessionName = name; name != s.ID || len(name) > 100 {
			k.SessionName = name[:min(len(name), 100)] + "_" + session.Digest(s.ID)[:32]
		}
	}
	return k
}

// skilletFinish names the session, and ends it.
func skilletFinish(s *rows.Session, key skilletNames) *codec.Session {
	s.Row.Title = cmp.Or(key.SessionName, s.Row.Title)
	if key.UserID != "" && key.sanitized().UserID != key.UserID {
		s.SetMeta("user_id", key.UserID)
	}
	s.SetMeta(skilletName, append(rows.NonEmpty("user", key.UserID), rows.Of("session_name", key.SessionName)...))
	return s.Finish()
}

// skilletContentParts returns the parts of what a message says: a text, or input_text, output_text, input_image,
// input_file and audio.
func skilletContentParts(content json.RawMessage) (parts []rows.Object) {
	if s, ok := rows.Text(content); ok {
		return []rows.Object{rows.TextPart("text", s)}
	}
	for c := range rows.Objects(content) {
		url, mediaType, filename := "", "image/*", ""
		part := rows.DataPart(skilletContentPart, c)
		switch c.Text("type") {
		case "input_text", "output_text", "text":
			part = rows.TextPart("text", c.Text("text"))
		case "input_image":
			url = c.Text("image")
		case "input_file":
			url, mediaType = cmp.Or(c.Text("file"), c.Object("file").Text("url")), "application/octet-stream"
			filename = c.Text("filename")
		case "audio":
			if audio, format := c.Text("audio"), c.Text("format"); audio != "" && !strings.ContainsAny(format, ";,") {
				url, mediaType = "data:audio/"+format+";base64,"+audio, "audio/"+format
			}
		}
		if rest, ok := strings.CutPrefix(url, "data:"); ok { // which has its own media type
			head, _, _ := strings.Cut(rest, ",")
			if t, _, err := mime.ParseMediaType(strings.TrimSuffix(head, ";base64")); err == nil {
				mediaType = t
			}
		}
		if url != "" {
			part = rows.FilePart(mediaType, filename, url)
		}
		parts = append(parts, part)
	}
	return parts
}

// skilletContent is what a user's parts are in skillet's words. What it has no word for is left out.
func skilletContent(parts []rows.Object) []rows.Object {
	list := make([]rows.Object, 0, len(parts))
	for _, p := range parts {
		url := p.Text("url")
		audio, isAudio := strings.CutPrefix(url, "data:audio/")
		format, base64, inline := strings.Cut(audio, ";base64,")
		switch typ := p.Text("type"); {
		case typ == "text":
			list = append(list, rows.Of("type", "input_text", "text", p.Text("text")))
		case typ == skilletContentPart && p.Object("data") != nil:
			list = append(list, p.Object("data"))
		case typ != "file":
		case isAudio && inline:
			list = append(list, rows.Of("type", "audio", "audio", base64, "format", format))
		case strings.HasPrefix(p.Text("mediaType"), "image/"):
			list = append(list, rows.Of("type", "input_image", "image", url))
		default:
			list = append(list, append(rows.Of("type", "input_file", "file", url), p.Texts("filename")...))
		}
	}
	return list
}

// skilletInput is the userInput, or the content of an item, that parts are: the text itself when it is all.
func skilletInput(parts []rows.Object) json.RawMessage {
	if len(parts) == 1 && parts[0].Text("type") == "text" {
		return rows.Raw(parts[0].Text("text"))
	}
	return rows.Raw(skilletContent(parts))
}

// skilletCall is what the log knows of a tool call.
type skilletCall struct{ agent, tool string }

func skilletCallOf(data rows.Object, agent string) skilletCall {
	if own := data.Object("callProviderMetadata").Object(skilletName); own.Has("agentName") {
		agent = own.Text("agentName")
	}
	return skilletCall{agent, rows.ToolName(data)}
}

// skilletParseArguments reads the arguments of a call, which are JSON, or a text when they are not.
func skilletParseArguments(arguments string) json.RawMessage {
	return rows.Unquoted(rows.Raw(arguments))
}

// skilletArgumentsOf is the inverse of skilletParseArguments.
func skilletArgumentsOf(data rows.Object) string {
	input := data.Get("input")
	if s, ok := rows.Text(input); ok && string(skilletParseArguments(s)) == string(input) {
		return s
	}
	return string(input)
}

// The texts in which the Agents SDK, which skillet is built on, gives the model an error and a denial as the result
// of a call, and the result of a call that has none, where there must be one.
const (
	skilletFailedText = "An error occurred while running the tool. Please try again. Error: "
	skilletDeniedText = "Tool execution was not approved."
	skilletNoResult   = "[no result]"
)

// skilletWithResult gives a call its result, before what is not the call's.
func skilletWithResult(p *rows.Part, output json.RawMessage) {
	data := p.Data()
	own := data.Get("callProviderMetadata")
	text, _ := rows.Text(output)
	if text == skilletNoResult {
		return
	}
	data = data.Without("callProviderMetadata")
	if details, failed := strings.CutPrefix(text, skilletFailedText); failed {
		data.Add(rows.Of("state", session.StateOutputError, "errorText", details))
	} else if reason, denied := strings.CutPrefix(text, skilletDeniedText); denied {
		data.Add(rows.Of("state", session.StateOutputError, "errorText", cmp.Or(strings.TrimPrefix(reason, " "), text)))
		data.SetToolTrace("denied", true)
	} else {
		data.Add(rows.Of("state", session.StateOutputAvailable, "output", output))
	}
	data.Add(rows.NonEmpty("callProviderMetadata", own))
	p.Set(data)
}

// skilletResultText is the result of a call as a text, which is all that skillet keeps.
func skilletResultText(data rows.Object) (text string, done bool) {
	reason := data.Text("errorText")
	switch data.Text("state") {
	case session.StateOutputAvailable:
		output := rows.Output(data)
		if s, ok := rows.Text(output); ok {
			return s, true
		}
		return string(output), true
	case session.StateOutputError:
		if !data.Object("toolMetadata").Object("agenttrace").True("denied") {
			return skilletFailedText + reason, true
		}
	case session.StateOutputDenied:
		reason = data.Object("approval").Text("reason")
	default:
		return "", false
	}
	if reason == "" || reason == skilletDeniedText {
		return skilletDeniedText, true
	}
	return skilletDeniedText + " " + reason, true
}

// skilletItem is a row of session_items.
type skilletItem struct {
	row  int64 // its id
	at   int64 // created_at, in Unix milliseconds
	text string
}

// Types of items.
const (
	skilletMessageItem, skilletReasoningItem = "message", "reasoning"
	skilletCallItem, skilletResultItem       = "function_call", "function_call_result"
)

// skilletParseItem reads the item_json of a row. A message that lacks its type gets it.
func skilletParseItem(text string) (rows.Object, error) {
	o, err := rows.Parse([]byte(text))
	if o.Text("type") == "" && o.Has("role") {
		o.Set("type", skilletMessageItem)
	}
	return o, err
}

type skilletItemDecoder struct {
	rows.Reporter
	s     *rows.Session
	users int64
	calls map[string]*rows.Part
	count int // of items
}

// skilletDecodeItems makes a session of the rows of a conversation.
func skilletDecodeItems(key skilletNames, items []skilletItem, file string, report func(codec.Problem)) *codec.Session {
	d := skilletItemDecoder{Reporter: rows.Reporter{Report: report, Place: codec.Problem{File: file}},
		s: rows.New(key.sessionID(), skilletName), calls: make(map[string]*rows.Part)}
	for _, i := range items {
		d.Place.Record = fmt.Sprintf("session_items row %d", i.row)
		o, err := skilletParseItem(string(d.Valid([]byte(i.text))))
		if err != nil {
			d.Problem("is not an item: left out: %v", err)
			continue
		}
		d.s.See(i.at)
		d.count++
		d.item(i.at, o)
	}
	return skilletFinish(d.s, key)
}

func (d *skilletItemDecoder) item(at int64, o rows.Object) {
	typ, role, id := o.Text("type"), o.Text("role"), o.Text("callId")
	call := d.calls[id]
	switch {
	case typ == skilletMessageItem && (role == session.RoleUser || role == session.RoleSystem):
		m := d.s.Message(role, at)
		for _, data := range skilletContentParts(o.Get("content")) {
			m.Part(data, at)
		}
		if role == session.RoleUser {
			d.users++
		}
		return
	case typ == skilletResultItem && call != nil:
		skilletWithResult(call, skilletItemOutput(o.Get("output")))
		call.Touch(at)
		return
	}
	m, begun := d.s.Answer(at)
	if begun {
		m.SetMeta("agenttrace", session.MessageTrace{TurnIndex: new(max(d.users-1, 0))})
	}
	m.Touch(at)
	switch {
	case typ == skilletMessageItem && role == session.RoleAssistant:
		for _, data := range skilletContentParts(o.Get("content")) {
			m.Part(data, at)
		}
	case typ == skilletReasoningItem:
		m.Part(rows.TextPart("reasoning", skilletReasoningText(o)), at)
	case typ == skilletCallItem:
		if id == "" || call != nil {
			d.Problem("call with the callId %q, which names no call or another one: its result cannot be matched", id)
			id = spans.DeriveID("call_", at, d.s.Row.ID, strconv.Itoa(d.count))
		}
		d.calls[id] = m.Call(id, o.Text("name"), skilletParseArguments(o.Text("arguments")), at)
	case typ == "compaction":
		m.Part(rows.CompactionPart("", true), at)
	default:
		if typ == skilletResultItem {
			d.Problem("result of call %q, which is not above it: kept as data-item", id)
		}
		m.Part(rows.DataPart("data-item", o), at)
	}
}

// skilletReasoningText returns what a reasoning item says: its content, or else its raw content.
func skilletReasoningText(o rows.Object) (text string) {
	for _, key := range []string{"content", "rawContent"} {
		var texts []string
		for c := range rows.Objects(o.Get(key)) {
			texts = append(texts, c.Text("text"))
		}
		text = cmp.Or(text, strings.Join(texts, "\n\n"))
	}
	return text
}

// skilletItemOutput is the output of a call: a text as it is, anything else as JSON.
func skilletItemOutput(output json.RawMessage) json.RawMessage {
	if o, err := rows.Parse(output); err == nil && len(o) == 2 && o.Text("type") == "text" && o[1].Key == "text" {
		return o.Get("text")
	}
	return rows.OrNull(output)
}

// skilletItemsOf returns the session as rows of the store: what the model would be sent.
func skilletItemsOf(t *session.Transcript) (items []skilletItem) {
	t = t.Sorted()
	last := int64(math.MinInt64)
	ids := make(map[string]bool) // of calls
	add := func(at int64, o rows.Object) {
		last = max(last, at) // the rows are read in order of time
		items = append(items, skilletItem{row: int64(len(items) + 1), at: last, text: string(o.JSON())})
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Message.HiddenAt != nil {
			continue
		}
		parts := dataOf(m)
		content := skilletInput(parts)
		switch m.Message.Role {
		case session.RoleAssistant:
			for k, data := range parts {
				skilletPartItems(&m.Parts[k], data, ids, add)
			}
			continue
		case session.RoleSystem: // an item that holds no more than a text
			var texts []string
			for _, data := range parts {
				if data.Text("type") == "text" {
					texts = append(texts, data.Text("text"))
				}
			}
			content = rows.Raw(strings.Join(texts, "\n\n"))
		}
		add(m.Message.CreatedAt, rows.Of("role", m.Message.Role, "content", content))
	}
	return items
}

// skilletPartItems adds the items of a part of the assistant's. Calls must have ids that differ.
func skilletPartItems(p *session.Part, data rows.Object, ids map[string]bool, add func(int64, rows.Object)) {
	message := func(content rows.Object) {
		add(p.CreatedAt, rows.Of("type", skilletMessageItem, "role", session.RoleAssistant, "status", "completed",
			"content", []rows.Object{content}))
	}
	inner := data.Object("data")
	switch {
	case p.Type == "text":
		message(rows.Of("type", "output_text", "text", data.Text("text")))
	case p.Type == skilletContentPart && inner != nil:
		message(inner)
	case p.Type == "reasoning":
		text := rows.Of("type", "input_text", "text", data.Text("text"))
		add(p.CreatedAt, rows.Of("type", skilletReasoningItem, "content", []rows.Object{text}))
	case p.Type == "data-item" && inner.Text("type") != "":
		add(p.CreatedAt, inner)
	case session.IsToolType(p.Type):
		id, name := data.Text("toolCallId"), rows.ToolName(data)
		if id == "" || ids[id] {
			id = p.ID
		}
		ids[id] = true
		add(p.CreatedAt, rows.Of("type", skilletCallItem, "callId", id, "name", name,
			"arguments", skilletArgumentsOf(data), "status", "completed"))
		if result, done := skilletResultText(data); done {
			output := rows.Of("type", "text", "text", result).JSON()
			if list := rows.Elements(data.Get("output")); len(list) > 0 && // of content
				!slices.ContainsFunc(list, func(c json.RawMessage) bool {
					return !strings.HasPrefix(rows.Read(string(c)).Text("type"), "input_")
				}) {
				output = data.Get("output")
			}
			add(p.UpdatedAt, rows.Of("type", skilletResultItem, "callId", id, "name", name, "status", "completed",
				"output", output))
		}
	}
}

// skilletGuide knows from the store what the log leaves out: the items that are not used yet, and the end after them.
type skilletGuide []skilletHint

// skilletHint is an item that the log has, too: what a user said, a call, or a text. Before it there was reasoning.
type skilletHint struct {
	key      string
	id       string // of a call
	thoughts []string
}

const skilletTextHint = "text"

func skilletCallHint(name, arguments string) string { return "call " + name + " " + arguments }

func skilletUserHint(parts []rows.Object) string { return "user " + string(skilletInput(parts)) }

func skilletNewGuide(items []skilletItem) (g skilletGuide) {
	var h skilletHint
	for _, i := range items {
		o, _ := skilletParseItem(i.text) // what is not an item has no type
		switch typ := o.Text("type"); {
		case typ == skilletReasoningItem:
			if text := skilletReasoningText(o); text != "" {
				h.thoughts = append(h.thoughts, text)
			}
			continue
		case typ == skilletCallItem:
			h.key, h.id = skilletCallHint(o.Text("name"), o.Text("arguments")), o.Text("callId")
		case typ == skilletMessageItem && o.Text("role") == session.RoleUser:
			h.key = skilletUserHint(skilletContentParts(o.Get("content")))
		case typ == skilletMessageItem:
			h.key = skilletTextHint
		default:
			continue
		}
		g, h = append(g, h), skilletHint{}
	}
	return append(g, h)
}

// take moves on to what follows the next hint of a key, which is returned: one in the same turn, or what a user said. A
// text is not after a call.
func (g *skilletGuide) take(key string) (found skilletHint) {
	for i, h := range *g {
		if h.key == key {
			*g = (*g)[i+1:]
			return h
		}
		kind, _, _ := strings.Cut(h.key, " ")
		if kind == "user" && !strings.HasPrefix(key, kind) || kind == "call" && key == skilletTextHint {
			break
		}
	}
	return found
}

// rest returns the reasoning with which a turn ends.
func (g skilletGuide) rest() (thoughts []string) {
	if len(g) > 0 && (g[0].key == "" || strings.HasPrefix(g[0].key, "user ")) {
		thoughts, g[0].thoughts = g[0].thoughts, nil
	}
	return thoughts
}
