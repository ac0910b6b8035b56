package transcripts

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Cursor reads a chat of Cursor CLI, which is a database store.db. Its table meta
// has one row, hexadecimal JSON that names the root; the table blobs has what the root
// refers to by SHA-256. A reference is field 1 of a protobuf message, and what it refers
// to is a message in the JSON of the AI SDK, or another list of references.
//
//	system             system prompt
//	user               user message; what the program adds is a system message
//	assistant          a step: reasoning, text, and tool calls
//	tool               results of calls
//
// The program stores no times of messages and no usage. The ids of rows follow from the
// digests of messages, so a chat that was compacted adds to what it was before.
//
// What cannot be read is reported and left out; report may be nil. An error is yielded
// when the file is not such a database.
var Cursor = codec.Reading{
	Extensions: []string{".db"}, Tables: []string{"blobs", "meta"}, Transcript: true,
	DecodeFile: inDatabase("chat of Cursor", decodeCursor), Beside: besideCursor,
}

func besideCursor(path string) []string {
	return []string{path + "-wal", path + "-journal", filepath.Join(filepath.Dir(path), "meta.json")}
}

func decodeCursor(ctx context.Context, conn *sqlite.Conn, path string, _ codec.Wanted, report func(codec.Problem),
	yield func(*codec.Session) bool) error {
	about, err := cursorMeta(conn)
	if err != nil {
		return err
	}
	d := cursor{conn: conn, seen: make(map[string]bool), keys: make(map[*rows.Message]string),
		times: make(map[string]int)}
	beside, _ := rows.Parse([]byte(beside(path, "meta.json"))) // older versions write none
	id := about.Text("agentId")
	if dir, err := filepath.Abs(filepath.Dir(path)); id == "" && err == nil {
		id = strings.ToValidUTF8(filepath.Base(dir), "\uFFFD")
	}
	d.b = newBuilder(id, "cursor-cli", report)
	row := &d.b.s.Row
	rows.SetText(&row.WorkspaceRoot, beside.Text("cwd"))
	rows.SetText(&row.Mode, about.Text("mode"))
	if model := about.Text("lastUsedModel"); model != "" {
		d.b.model(cursorProvider, model)
	}
	if title := cmp.Or(beside.Text("title"), about.Text("name")); title != "New Agent" {
		d.b.Title = title
	}
	d.b.seeMilli(cmp.Or(moment(about, "createdAt"), moment(beside, "createdAtMs")))
	root := about.Text("latestRootBlobId")
	d.read(root, 0)
	if err := ctx.Err(); err != nil {
		return err
	}
	d.b.changed(moment(beside, "updatedAtMs"))
	d.rename()
	yield(d.b.finish())
	return nil
}

const cursorProvider = "cursor"

// cursorMeta reads the row that names the root.
func cursorMeta(conn *sqlite.Conn) (about rows.Object, err error) {
	list, err := table(conn, "SELECT value FROM meta ORDER BY key")
	for _, row := range list {
		text, err := hex.DecodeString(row.Text("value"))
		if err != nil {
			text = []byte(row.Text("value")) // versions may write it as it is
		}
		if o, err := parse(text); err == nil && about == nil && o.Text("latestRootBlobId") != "" {
			about = o
		}
	}
	if err == nil && about == nil {
		err = errors.New("its table meta names no root of a chat")
	}
	return about, err
}

type cursor struct {
	conn *sqlite.Conn
	b    *builder
	seen map[string]bool
	// keys are the digests of the first messages that rows are made of. A message that is sent again has the same
	// digest: times is how many rows begin with one.
	keys  map[*rows.Message]string
	times map[string]int
}

// maxCursorDepth bounds how deep lists of references are nested.
const maxCursorDepth = 1000

// read reads what a digest refers to.
func (d *cursor) read(digest string, depth int) {
	if depth > maxCursorDepth {
		d.b.report(codec.Problem{Record: "blob " + digest, Reason: "is nested too deep: left out"})
		return
	}
	var data []byte
	found, err := table(d.conn, "SELECT hex(data) AS data FROM blobs WHERE id = ?", digest)
	if len(found) > 0 {
		data, _ = hex.DecodeString(found[0].Text("data"))
	}
	switch {
	case err != nil:
		d.b.report(codec.Problem{Record: "blob " + digest, Reason: "cannot be read: left out: " + err.Error()})
	case len(found) == 0:
		d.b.report(codec.Problem{Record: "blob " + digest, Reason: "is not there: left out"})
	case len(data) == 0:
		d.b.report(codec.Problem{Record: "blob " + digest, Reason: "is empty: left out"})
	case data[0] == '{':
		d.message(digest, data)
	default:
		d.list(digest, data, depth)
	}
}

// list reads the messages that a protobuf message refers to, in its field 1, and the one
// that it may have, in its field 4.
func (d *cursor) list(digest string, data []byte, depth int) {
	const lists, embeds = 1, 4
	if d.seen[digest] {
		return // a list that has itself
	}
	d.seen[digest] = true
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		var value []byte
		if n > 0 {
			data = data[n:]
			if kind == protowire.BytesType {
				value, n = protowire.ConsumeBytes(data)
			} else {
				n = protowire.ConsumeFieldValue(number, kind, data)
			}
		}
		if n < 0 {
			d.b.report(codec.Problem{Record: "blob " + digest, Reason: "is damaged: the rest of it is left out"})
			return
		}
		data = data[n:]
		switch {
		case number == lists && len(value) == 32:
			d.read(hex.EncodeToString(value), depth+1)
		case number == embeds && len(value) > 0 && value[0] == '{':
			d.message(digest, value)
		}
	}
}

// message adds a message.
func (d *cursor) message(digest string, data []byte) {
	o, err := parse(data)
	if err != nil {
		d.b.report(codec.Problem{Record: "blob " + digest, Reason: "is not a message: left out: " + err.Error()})
		return
	}
	b := d.b
	b.touched = nil
	switch role := o.Text("role"); role {
	case "system":
		text, _ := rows.Text(resultOf(o.Get("content")))
		b.Prompt = b.blob(store.BlobSystemPrompt, text)
	case "user":
		d.user(o)
	case "assistant":
		d.assistant(digest, o)
	case "tool":
		for _, block := range contents(o.Get("content")) {
			if block.Text("type") == "tool-result" {
				d.result(digest, block)
			}
		}
	default:
		d.b.report(codec.Problem{Record: "blob " + digest, Reason: "is a message without a known role: left out"})
	}
	if m := b.touched; m != nil && d.keys[m] == "" {
		d.keys[m] = digest
		if d.times[digest]++; d.times[digest] > 1 {
			d.keys[m] = fmt.Sprint(digest, " ", d.times[digest])
		}
	}
}

// user adds a message of the user, whose question is within a tag where the program adds
// to it.
func (d *cursor) user(o rows.Object) {
	var parts []rows.Object
	role := session.RoleSystem
	for _, block := range contents(o.Get("content")) {
		part := partOf(block)
		text := strings.TrimSpace(part.Text("text"))
		if !strings.HasPrefix(text, "<") || strings.Contains(text, "<user_query>") {
			role = session.RoleUser
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return
	}
	d.b.message(role, parts)
}

func (d *cursor) assistant(digest string, o rows.Object) {
	b := d.b
	b.step(digest)
	for _, block := range contents(o.Get("content")) {
		model := block.Object("providerOptions").Object("cursor").Text("modelName")
		if model != "" {
			b.model(cursorProvider, model)
			b.stepAt(b.lastStep()).Model = &session.Model{ProviderID: cursorProvider, ModelID: model}
		}
		switch block.Text("type") {
		case "tool-call":
			input := block.Get("args")
			if input == nil {
				input = block.Get("input")
			}
			b.call(block.Text("toolName"), block.Text("toolCallId"), inputOf(input))
		case "redacted-reasoning":
		case "reasoning":
			b.text("reasoning", block.Text("text"))
		default:
			b.part(partOf(block))
		}
	}
}

func (d *cursor) result(digest string, block rows.Object) {
	id := block.Text("toolCallId")
	output := block.Get("result")
	failed := block.True("isError")
	if value := block.Object("output"); output == nil && value != nil {
		output = value.Get("value")
		failed = failed || strings.HasPrefix(value.Text("type"), "error-")
	}
	if output == nil {
		output = block.Get("experimental_content")
	}
	d.b.outcome(codec.Problem{Record: "blob " + digest}, id, resultOf(output), failed)
}

// rename gives rows ids that follow from the digests of their messages, and that are in
// the order of the messages.
func (d *cursor) rename() {
	// Ids that follow from the order of messages would change when a compaction removes the first ones, and the next
	// import would add the rest of the chat a second time.
	own := func(id, prefix string, parts ...string) string {
		const stamp = 12
		derived := spans.DeriveID(prefix, 0, append([]string{d.b.s.Row.ID}, parts...)...)
		return id[:len(prefix)+stamp] + derived[len(prefix)+stamp:]
	}
	for _, m := range d.b.s.Messages() {
		m.Row.ID = own(m.Row.ID, spans.PrefixMessage, d.keys[m])
		for i, p := range m.Parts() {
			p.Row.MessageID = m.Row.ID
			p.Row.ID = own(p.Row.ID, spans.PrefixPart, d.keys[m], fmt.Sprint(i))
		}
	}
}
