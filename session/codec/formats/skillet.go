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
	"regexp"
	"slices"
	"strconv"
	"strings"

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

var skilletUnsafeRun = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)

// skilletSanitize returns a name as it is in a log's path. Different names may be one there.
func skilletSanitize(name string) string {
	return strings.Trim(skilletUnsafeRun.ReplaceAllString(strings.TrimSpace(name), "_"), "_")
}

// sanitized are the names as they are in a log's path.
func (k skilletNames) sanitized() skilletNames {
	return skilletNames{skilletSanitize(k.UserID), skilletSanitize(k.SessionName)}
}

// skilletSessionIDs are names that are ids of sessions, as EncodeFile gives sessions that have no name.
var skilletSessionIDs = regexp.MustCompile(`^ses_[0-9a-f]{12}[0-9A-Za-z]{14}$`)

// sessionID returns the id of the conversation's session, the same whether it is read from the log or from the store.
func (k skilletNames) sessionID() string {
	if skilletSessionIDs.MatchString(k.SessionName) {
		return k.SessionName
	}
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
	if skilletSanitize(k.SessionName) != "" {
		return k
	}
	k.SessionName = s.ID
	if name := codec.FileName(s.ID); name != s.ID && !skilletSessionIDs.MatchString(s.ID) {
		name = skilletSanitize(name)
		k.SessionName = strings.Trim(name[:min(len(name), 100)]+"_"+rows.Digest(s.ID)[:32], "_")
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

// skilletGuide knows from the store what the log leaves out: the items that are not used yet, and nil at the end.
type skilletGuide []rows.Object

func skilletNewGuide(items []skilletItem) (g skilletGuide) {
	for _, i := range items {
		if o, err := skilletParseItem(i.text); err == nil {
			g = append(g, o)
		}
	}
	return append(g, nil)
}

// skilletIs returns a condition on items: to be of a type, and for a message to have a role.
func skilletIs(typ, role string) func(rows.Object) bool {
	return func(o rows.Object) bool { return o.Text("type") == typ && (role == "" || o.Text("role") == role) }
}

// take moves on to what follows the next item that is wanted, if it comes before an end, and returns the item and the
// reasoning before it.
func (g *skilletGuide) take(wanted, end func(rows.Object) bool) (found rows.Object, thoughts []string) {
	for i, o := range *g {
		if end(o) {
			break
		} else if wanted(o) {
			*g = (*g)[i+1:]
			return o, thoughts
		} else if text := skilletReasoningText(o); o.Text("type") == skilletReasoningItem && text != "" {
			thoughts = append(thoughts, text)
		}
	}
	return nil, nil
}

// user moves on to what follows a user message, and reports whether the store still has it.
func (g *skilletGuide) user(parts []rows.Object) bool {
	want, said := string(skilletInput(parts)), skilletIs(skilletMessageItem, session.RoleUser)
	found, _ := g.take(func(o rows.Object) bool {
		return said(o) && string(skilletInput(skilletContentParts(o.Get("content")))) == want
	}, func(rows.Object) bool { return false })
	return found != nil
}

// call returns the id of a call, and the reasoning before it.
func (g *skilletGuide) call(name, arguments string) (id string, thoughts []string) {
	o, thoughts := g.take(func(o rows.Object) bool {
		return o.Text("type") == skilletCallItem && o.Text("name") == name && o.Text("arguments") == arguments
	}, skilletIs(skilletMessageItem, session.RoleUser))
	return o.Text("callId"), thoughts
}

// text returns the reasoning before the next text.
func (g *skilletGuide) text() []string {
	said := skilletIs(skilletMessageItem, session.RoleUser)
	_, thoughts := g.take(skilletIs(skilletMessageItem, ""),
		func(o rows.Object) bool { return o.Text("type") == skilletCallItem || said(o) })
	return thoughts
}

// rest returns the reasoning with which a turn ends: what the log knows nothing of is not between.
func (g *skilletGuide) rest() []string {
	all, said := *g, skilletIs(skilletMessageItem, "")
	_, thoughts := g.take(func(o rows.Object) bool { return said(o) || o == nil }, skilletIs(skilletCallItem, ""))
	if thoughts != nil {
		*g = all[len(all)-len(*g)-1:] // what follows is of the next turn
	}
	return thoughts
}
