// Skillet: these files read and write the conversations of skilled_crew's skillet: its replay log, which is the history,
// and its session store, which holds the items that the model is sent again. Both are kept by user and session name,
// the log under names that are cut to [a-zA-Z0-9_-]. docs/formats.md lists what becomes what.

package formats

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime"
	"regexp"
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
		sum := sha256.Sum256([]byte(s.ID))
		name = skilletSanitize(name)
		k.SessionName = strings.Trim(name[:min(len(name), 100)]+"_"+hex.EncodeToString(sum[:16]), "_")
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

// skilletContentParts returns the parts of a user's content: a text, or input_text, input_image, input_file and audio.
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
		case typ == session.TypeWithheld:
			list = append(list, rows.Of("type", "input_text", "text", codec.WithheldText))
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

func skilletPartsOf(m *session.MessageAndParts) []rows.Object {
	all := make([]rows.Object, len(m.Parts))
	for i := range m.Parts {
		all[i] = rows.Read(m.Parts[i].DataJSON)
	}
	return all
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

// The texts in which the Agents SDK, which skillet is built on, gives the model an error and a denial as the result of a
// call, and the result of a call that has none, where there must be one.
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
