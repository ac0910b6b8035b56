package transcripts

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
)

// Cursor reads a chat of Cursor CLI, which is a database store.db. Its table meta has one row, hexadecimal JSON that
// names the root; the table blobs has what the root refers to by SHA-256. A reference is field 1 of a protobuf message,
// and what it refers to is a message in the JSON of the AI SDK, or another list of references.
//
// The program stores no times of messages and no usage. The ids of rows follow from the
// digests of messages, so a chat that was compacted adds to what it was before.
var Cursor = codec.Reading{
	Extensions: []string{".db"}, Tables: []string{"blobs", "meta"}, Transcript: true,
	ReadPath: inDatabase("chat of Cursor", decodeCursor), Beside: func(path string) []string {
		return []string{path + "-wal", path + "-journal", filepath.Join(filepath.Dir(path), "meta.json")}
	},
}

const cursorProvider = "cursor"

type cursor struct {
	*database
	b    *builder
	seen map[string]bool
	// keys are the digests of the first messages that rows are made of. A message that is sent again has the same
	// digest: times is how many rows begin with one.
	keys  map[*message]string
	times map[string]int
}

func decodeCursor(db *database) error {
	about, err := cursorMeta(db)
	if err != nil {
		return err
	}
	beside, _ := rows.Parse(db.beside("meta.json")) // older versions write none
	d := cursor{database: db, seen: make(map[string]bool), keys: make(map[*message]string), times: make(map[string]int),
		b: newBuilder(db.source, cmp.Or(about.Text("agentId"), dirOf(db.path)), "cursor-cli")}
	d.b.workspace(beside.Text("cwd"))
	d.b.mode(about.Text("mode"))
	d.b.model(cursorProvider, about.Text("lastUsedModel"))
	if title := cmp.Or(beside.Text("title"), about.Text("name")); title != "New Agent" {
		d.b.Title = title
	}
	d.b.see(cmp.Or(moment(about, "createdAt"), moment(beside, "createdAtMs")))
	d.read(about.Text("latestRootBlobId"), 0)
	if err := db.ended(); err != nil {
		return err
	}
	d.b.changed(moment(beside, "updatedAtMs"))
	d.rename()
	db.yield(d.b.finish())
	return nil
}

// cursorMeta reads the row that names the root.
func cursorMeta(db *database) (rows.Object, error) {
	list, err := db.table("SELECT value FROM meta ORDER BY key")
	for _, row := range list {
		text, err := hex.DecodeString(row.Text("value"))
		if err != nil {
			text = []byte(row.Text("value")) // versions may write it as it is
		}
		if o, err := parse(text); err == nil && o.Text("latestRootBlobId") != "" {
			return o, nil
		}
	}
	return nil, cmp.Or(err, errors.New("its table meta names no root of a chat"))
}

// read reads what a digest refers to.
func (d *cursor) read(digest string, depth int) {
	const maximum = 1000 // of lists that are nested
	d.Place.Record = "blob " + digest
	found, err := d.table("SELECT hex(data) AS data FROM blobs WHERE id = ?", digest)
	var data []byte
	if len(found) > 0 {
		data, _ = hex.DecodeString(found[0].Text("data"))
	}
	switch {
	case len(data) == 0 || depth > maximum:
		d.Problem("cannot be read: left out: %v", err)
	case data[0] == '{':
		d.message(digest, data)
	case !d.seen[digest]: // not a list that has itself
		d.seen[digest] = true
		d.list(digest, data, depth)
	}
}

// list reads the messages that a protobuf message refers to, in its field 1, and the one
// that it may have, in its field 4.
func (d *cursor) list(digest string, data []byte, depth int) {
	const lists, embeds = 1, 4
	for len(data) > 0 {
		d.Place.Record = "blob " + digest
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
			d.Problem("is damaged: the rest of it is left out")
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
		d.Problem("is not a message: left out: %v", err)
		return
	}
	b, blocks := d.b, contents(o.Get("content"))
	b.touched = nil
	switch role := o.Text("role"); role {
	case "system":
		text, _ := rows.Text(resultOf(o.Get("content")))
		b.systemPrompt(text)
	case "user":
		d.user(blocks)
	case "assistant":
		step := b.step(digest)
		for _, block := range blocks {
			if model := block.Object("providerOptions").Object("cursor").Text("modelName"); model != "" {
				b.model(cursorProvider, model)
				step.ran(b.Model)
			}
			b.block(block)
		}
	case "tool":
		for _, block := range blocks {
			if block.Text("type") == "tool-result" {
				d.result(block)
			}
		}
	default:
		d.Problem("is a message without a known role: left out")
	}
	if m := b.touched; m != nil && d.keys[m] == "" {
		d.keys[m] = digest
		if d.times[digest]++; d.times[digest] > 1 {
			d.keys[m] = fmt.Sprint(digest, " ", d.times[digest])
		}
	}
}

// user adds a message of the user, whose question is within a tag where the program adds to it.
func (d *cursor) user(blocks []rows.Object) {
	var parts []rows.Object
	role := session.RoleSystem
	for _, block := range blocks {
		part := partOf(block)
		text := strings.TrimSpace(part.Text("text"))
		if !strings.HasPrefix(text, "<") || strings.Contains(text, "<user_query>") {
			role = session.RoleUser
		}
		parts = append(parts, part)
	}
	d.b.message(role, parts...)
}

func (d *cursor) result(block rows.Object) {
	output, failed, value := block.Get("result"), block.True("isError"), block.Object("output")
	if output == nil && value != nil {
		output, failed = value.Get("value"), failed || strings.HasPrefix(value.Text("type"), "error-")
	}
	given := block.Get("experimental_content") // to the model, instead of the result
	if output == nil || slices.ContainsFunc(contents(given), func(o rows.Object) bool { return !o.Has("text") }) {
		output = given
	}
	d.b.result(block.Text("toolCallId"), resultOf(output), failed)
}

// rename gives rows ids that follow from the digests of their messages, and that are in the order of the messages.
func (d *cursor) rename() {
	// Ids that follow from the order of messages would change when a compaction removes the first ones, and the next
	// import would add the rest of the chat a second time.
	own := func(id, prefix string, parts ...string) string {
		const stamp = 12
		derived := spans.DeriveID(prefix, 0, append([]string{d.b.s.Row.ID}, parts...)...)
		return id[:len(prefix)+stamp] + derived[len(prefix)+stamp:]
	}
	for _, m := range d.b.messages {
		m.Row.ID = own(m.Row.ID, spans.PrefixMessage, d.keys[m])
		for i, p := range m.Parts() {
			p.Row.MessageID = m.Row.ID
			p.Row.ID = own(p.Row.ID, spans.PrefixPart, d.keys[m], fmt.Sprint(i))
		}
	}
}
