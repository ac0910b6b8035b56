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
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
)

const (
	// skilletMetaKey is the key of metadata_json with the names of the conversation.
	skilletMetaKey   = "skillet"
	skilletAgentName = "skillet"

	skilletLogsDir      = ".agent_session_logs"
	skilletDatabaseFile = ".agent_sessions.sqlite"

	skilletContentPart = "data-content" // content of a message that has no part of its own
)

// skilletNames identify a conversation. A user's id is an e-mail address.
type skilletNames struct {
	UserID      string
	SessionName string
}

var skilletUnsafeRun = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)

// skilletSanitize returns a name as it is in a log's path. Different names may be one there.
func skilletSanitize(name string) string {
	return strings.Trim(skilletUnsafeRun.ReplaceAllString(strings.TrimSpace(name), "_"), "_")
}

// sanitized are the names as they are in a log's path.
func (k skilletNames) sanitized() skilletNames {
	return skilletNames{skilletSanitize(k.UserID), skilletSanitize(k.SessionName)}
}

// logPath is the log's path below the logs' directory.
func (k skilletNames) logPath() string {
	k = k.sanitized()
	return filepath.Join(k.UserID, k.SessionName+".jsonl")
}

// skilletSessionIDs are names that are ids of sessions, as EncodeFile gives sessions that have no name.
var skilletSessionIDs = regexp.MustCompile(`^ses_[0-9a-f]{12}[0-9A-Za-z]{14}$`)

// sessionID returns the id of the conversation's session, the same whether it is read from the log or from the store.
func (k skilletNames) sessionID() string {
	if skilletSessionIDs.MatchString(k.SessionName) {
		return k.SessionName
	}
	safe := k.sanitized()
	return spans.DeriveID(spans.PrefixSession, 0, skilletMetaKey, safe.UserID, safe.SessionName)
}

// skilletNamesOf returns the names that a session is written under.
func skilletNamesOf(s *session.Session) skilletNames {
	meta := rows.Read(s.MetadataJSON)
	own := meta.Object(skilletMetaKey)
	k := skilletNames{UserID: cmp.Or(meta.Text("user_id"), own.Text("user")), SessionName: own.Text("session_name")}
	if skilletSanitize(k.UserID) == "" {
		k.UserID = skilletAgentName
	}
	if skilletSanitize(k.SessionName) == "" {
		k.SessionName = skilletNameOf(s.ID)
	}
	return k
}

// skilletNameOf is the name of a session without one: its id, or if the log's path cannot hold the id
// exactly, what it can hold of it, and a hash.
func skilletNameOf(id string) string {
	name := codec.FileName(id)
	if name == id || skilletSessionIDs.MatchString(id) {
		return id
	}
	name = skilletSanitize(name)
	sum := sha256.Sum256([]byte(id))
	return strings.Trim(name[:min(len(name), 100)]+"_"+hex.EncodeToString(sum[:16]), "_")
}

// skilletContentParts returns the parts of a user's content: a text, or input_text,
// input_image, input_file and audio.
func skilletContentParts(content json.RawMessage) (parts []rows.Object) {
	if s, ok := rows.Text(content); ok {
		return []rows.Object{rows.TextPart("text", s)}
	}
	for c := range rows.Objects(content) {
		part := rows.Object(nil)
		switch c.Text("type") {
		case "input_text", "output_text", "text":
			part = rows.TextPart("text", c.Text("text"))
		case "input_image":
			if url := c.Text("image"); url != "" {
				part = skilletFilePart(url, "image/*", "")
			}
		case "input_file":
			if url := cmp.Or(c.Text("file"), c.Object("file").Text("url")); url != "" {
				part = skilletFilePart(url, "application/octet-stream", c.Text("filename"))
			}
		case "audio":
			if audio, format := c.Text("audio"), c.Text("format"); audio != "" && !strings.ContainsAny(format, ";,") {
				part = skilletFilePart("data:audio/"+format+";base64,"+audio, "audio/"+format, "")
			}
		}
		if part == nil {
			part = rows.DataPart(skilletContentPart, c)
		}
		parts = append(parts, part)
	}
	return parts
}

// skilletFilePart is a file part. A data URL says its own media type.
func skilletFilePart(url, mediaType, filename string) rows.Object {
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		head, _, _ := strings.Cut(rest, ",")
		if t, _, err := mime.ParseMediaType(strings.TrimSuffix(head, ";base64")); err == nil {
			mediaType = t
		}
	}
	return rows.FilePart(mediaType, filename, url)
}

// skilletContent is what a user's parts are in skillet's words. What it has no word for is left out.
func skilletContent(parts []rows.Object) []rows.Object {
	list := make([]rows.Object, 0, len(parts))
	for _, p := range parts {
		switch p.Text("type") {
		case "text":
			list = append(list, rows.Of("type", "input_text", "text", p.Text("text")))
		case session.TypeWithheld:
			list = append(list, rows.Of("type", "input_text", "text", codec.WithheldText))
		case "file":
			list = append(list, skilletFileContent(p))
		case skilletContentPart:
			if o := p.Object("data"); o != nil {
				list = append(list, o)
			}
		}
	}
	return list
}

func skilletFileContent(p rows.Object) rows.Object {
	url := p.Text("url")
	if audio, ok := strings.CutPrefix(url, "data:audio/"); ok {
		if format, base64, ok := strings.Cut(audio, ";base64,"); ok {
			return rows.Of("type", "audio", "audio", base64, "format", format)
		}
	}
	if strings.HasPrefix(p.Text("mediaType"), "image/") {
		return rows.Of("type", "input_image", "image", url)
	}
	return append(rows.Of("type", "input_file", "file", url), p.Texts("filename")...)
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
