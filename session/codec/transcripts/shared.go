package transcripts

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// decoder reads the sessions of a text, which it does not retain. path is the file, "" if there is none.
type decoder func(path string, text []byte, report func(codec.Problem)) ([]*codec.Session, error)

// recordReader reads the records of a file of JSON lines.
type recordReader interface {
	Record(o rows.Object, line int)
	// Sessions returns what was read of the file at path. The reader reads no more then.
	Sessions(path string) ([]*codec.Session, error)
}

// lines reads files of JSON lines with the readers that open returns.
func lines(open func(path string, report func(codec.Problem)) recordReader) decoder {
	return func(path string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
		d := open(path, report)
		rows.Records(text, report, d.Record)
		return d.Sessions(path)
	}
}

// decoded yields what decode makes of a stream: its sessions, or an error.
func (decode decoder) decoded(path string, r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		text, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("read transcript: %w", err)
		}
		all, err := decode(path, text, report)
		for _, s := range all {
			yield(s)
		}
		return err
	})
}

// stream reads the sessions of what is not known to be a file.
func (decode decoder) stream(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return decode.decoded("", r, report)
}

// file reads the sessions of the file at path.
func (decode decoder) file(_ context.Context, path string, _ codec.Wanted,
	report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(nil, fmt.Errorf("open transcript: %w", err))
			return
		}
		defer f.Close()
		decode.decoded(path, f, report)(yield)
	}
}

// nameOf is the name of a file without its extension, by which programs name a session; "" without a file.
func nameOf(path string) string {
	if path == "" {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), "\uFFFD")
}

// beside reads a small file in the directory of path. One that is missing or too large
// is empty: what it has adds to the session, and nothing depends on it.
func beside(path, name string) string {
	const maximum = 1 << 20
	file := filepath.Join(filepath.Dir(path), name)
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || info.Size() > maximum {
		return ""
	}
	text, _ := os.ReadFile(file)
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// wants reports whether a session is wanted whose version is that of the rows.
func wants(wanted codec.Wanted, id string, row rows.Object, more ...rows.Object) bool {
	if wanted == nil {
		return true
	}
	sum := sha256.New()
	for _, o := range append(more, row) {
		sum.Write(o.JSON())
	}
	return wanted(id, hex.EncodeToString(sum.Sum(nil)[:8]))
}

// firstOf is the first element of an array, nil if there is none.
func firstOf(array json.RawMessage) json.RawMessage {
	for _, v := range rows.Elements(array) {
		return v
	}
	return nil
}

// spoken splits the parts of a message in the user's name into what the user wrote and, after that, what the client put
// around it; see [session.Words]. It reports whether there is anything of the user's.
func spoken(parts []rows.Object, tags ...string) (split []rows.Object, own bool) {
	var around []rows.Object
	for _, p := range parts {
		words, context := p.Text("text"), []string(nil)
		switch p.Text("type") {
		case session.TypeContext:
			around = append(around, p)
			continue
		case "text":
			words, context = session.Words(words, tags...)
		}
		for _, text := range context {
			around = append(around, contextPart(text))
		}
		if p.Has("text") && words != p.Text("text") {
			p = slices.Clone(p)
			p.Set("text", words)
		}
		if words != "" || len(context) == 0 {
			split, own = append(split, p), true
		}
	}
	return append(split, around...), own
}

func contextPart(text string) rows.Object {
	return rows.DataPart(session.TypeContext, rows.Of("text", text))
}

// child makes a builder for a sub-agent of the session, whose id is unique in it. call is
// the tool call that started it, "" if it is not known.
func (b *builder) child(sub, call string) *builder {
	agent := b.About.Transcript
	c := newBuilder(b.s.Row.ID+"-"+sub, agent, b.report)
	c.s.Row.ParentID, c.s.Row.WorkspaceRoot = new(b.s.Row.ID), b.s.Row.WorkspaceRoot
	c.About.SubagentOf, c.About.SubagentID, c.About.CallID = b.s.Row.ID, sub, call
	return c
}

// decide notes how the permission for a call was decided. What the decision has of the
// call is filled in.
func (b *builder) decide(id string, d store.Decision) {
	p := b.calls[id]
	if p == nil {
		return
	}
	d.SessionID, d.MessageID, d.PartID, d.ToolCallID = b.s.Row.ID, p.Row.MessageID, p.Row.ID, id
	d.ToolID, d.DecidedAt = strings.TrimPrefix(p.Row.Type, "tool-"), cmp.Or(d.DecidedAt, b.At)
	d.ID = spans.DeriveID(spans.PrefixPermission, d.DecidedAt, d.SessionID, d.PartID, id)
	b.s.Decisions = append(b.s.Decisions, d)
}

// changed notes when a session changed last, of which the messages have no times of their
// own: any of them may have, and the later version of a row counts.
func (b *builder) changed(at int64) {
	if at <= 0 {
		return
	}
	b.s.See(at)
	for _, m := range b.s.Messages() {
		for _, p := range m.Parts() {
			p.Touch(at)
		}
		m.Touch(at)
	}
}

// stepRef is the place of a model call: a step of a message.
type stepRef struct {
	m *rows.Message
	n int
}

// lastStep is the model call that began last in the turn.
func (b *builder) lastStep() stepRef { return stepRef{b.turn, len(b.answer(b.turn).Steps) - 1} }

// stepAt returns the step at a place.
func (b *builder) stepAt(r stepRef) *session.Step { return &b.answer(r.m).Steps[r.n] }

// modelUse is what a source reports of a model call: the time, the model if it is another than that of the
// message, what it used, and the cost.
type modelUse struct {
	at    int64
	model session.Model
	usage session.Usage
	cost  *float64
}

// count notes what a model call used. basis states how the source counts, see [semconv.BasisInclusive].
func (b *builder) count(r stepRef, u modelUse, basis string) {
	r.m.SetTrace("usage_basis", basis)
	step := b.stepAt(r)
	if step.Usage = &u.usage; u.model != (session.Model{}) {
		step.Model = &u.model
	}
	b.paid(r.m, u.cost)
}

// usageOf is what a step used, as far as it is known.
func usageOf(s *session.Step) session.Usage {
	if s.Usage == nil {
		return session.Usage{}
	}
	return *s.Usage
}

// unnamed is the id of a session that nothing names, which follows from its first record.
func unnamed(program string, first rows.Object) string {
	sum := sha256.Sum256(first.JSON())
	return program + "-" + hex.EncodeToString(sum[:8])
}

// orEmpty is the input of a call, or an empty object for none.
func orEmpty(input json.RawMessage) json.RawMessage {
	if input == nil {
		return json.RawMessage("{}")
	}
	return input
}

// inputOf is the input of a call: an object, which some programs write as a text, nil if there is none.
func inputOf(raw json.RawMessage) json.RawMessage {
	if text, ok := rows.Text(raw); ok {
		if v, err := rows.Value([]byte(text)); err == nil && len(v) > 0 && v[0] == '{' {
			return v
		}
	}
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// counts are the keys of a program's counts of tokens, "" for what it does not count.
type counts struct{ input, output, reasoning, read, write string }

// camelCounts are the keys that several programs have.
var camelCounts = counts{"inputTokens", "outputTokens", "", "cacheReadTokens", "cacheWriteTokens"}

// of reads counts that each stand for themselves.
func (k counts) of(o rows.Object) session.Usage {
	return session.Usage{Input: number(o, k.input), Output: number(o, k.output), Reasoning: number(o, k.reasoning),
		CacheRead: number(o, k.read), CacheWrite: number(o, k.write)}
}

// inclusive reads counts whose input includes the cache, and whose output includes the reasoning.
func (k counts) inclusive(o rows.Object) session.Usage {
	u := k.of(o)
	u.Input, u.Reasoning = max(0, u.Input-u.CacheRead-u.CacheWrite), min(u.Reasoning, u.Output)
	u.Output = max(0, u.Output-u.Reasoning)
	return u
}

// inDatabase yields what read makes of a database, as it is at one moment. what names its sessions.
func inDatabase(what string, read func(ctx context.Context, conn *sqlite.Conn, path string, wanted codec.Wanted,
	report func(codec.Problem), yield func(*codec.Session) bool) error) codec.FileDecoder {
	return func(ctx context.Context, path string, wanted codec.Wanted,
		report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
			conn, err := rows.SnapshotDatabase(ctx, path)
			if err == nil {
				defer conn.Close()
				err = read(ctx, conn, path, wanted, report, yield)
			}
			if err != nil {
				return fmt.Errorf("read %s in %s: %w", what, path, err)
			}
			return nil
		})
	}
}

// or reads a file that is not a database by its content.
func (decode decoder) or(inDatabase codec.FileDecoder) codec.FileDecoder {
	return func(ctx context.Context, path string, wanted codec.Wanted,
		report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		if ok, _ := rows.IsDatabase(path); !ok {
			return decode.file(ctx, path, wanted, report)
		}
		return inDatabase(ctx, path, wanted, report)
	}
}

// parse is [rows.Parse] of a text that may have bytes that are not UTF-8.
func parse(text []byte) (rows.Object, error) {
	return rows.Parse(bytes.ToValidUTF8(text, []byte("\uFFFD")))
}

// objectsIn calls each for the objects of an array: that which text is if key is "", or
// else the value of key in the object that text is, of which it returns the rest. What is
// good of a damaged text is read.
func objectsIn(text []byte, key string, report func(codec.Problem),
	each func(o rows.Object, line int)) (rest rows.Object) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if !utf8.Valid(text) {
		report(codec.Problem{Reason: "bytes that are not UTF-8 were replaced by U+FFFD"})
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	line := func() int { // of what comes next
		done := text[:min(int64(len(text)), d.InputOffset())]
		next := bytes.TrimLeft(text[len(done):], ", \t\r\n")
		return 1 + bytes.Count(text[:len(text)-len(next)], []byte("\n"))
	}
	err := func() error {
		if key == "" {
			return elementsOf(d, line, report, each)
		}
		if t, err := d.Token(); err != nil || t != json.Delim('{') {
			return cmp.Or(err, errors.New("it is not a JSON object"))
		}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return err
			}
			if name == key {
				err = elementsOf(d, line, report, each)
			} else {
				var value json.RawMessage
				if err = d.Decode(&value); err == nil {
					if v, err := rows.Value(value); err == nil {
						rest.Set(fmt.Sprint(name), v)
					}
				}
			}
			if err != nil {
				return err
			}
		}
		_, err := d.Token()
		return err
	}()
	if err != nil {
		report(codec.Problem{Line: line(), Reason: "the file is damaged from here on: the rest is left out: " +
			err.Error()})
	}
	return rest
}

func elementsOf(d *json.Decoder, line func() int, report func(codec.Problem),
	each func(o rows.Object, line int)) error {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return cmp.Or(err, errors.New("it is not a JSON array"))
	}
	for d.More() {
		at := line()
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		o, err := rows.Parse(raw)
		if err != nil {
			report(codec.Problem{Line: at, Reason: "is not a message: left out: " + err.Error()})
			continue
		}
		each(o, at)
	}
	_, err := d.Token()
	return err
}
