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
	"iter"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// source is what a reader reads.
type source struct {
	path          string // "" for a stream
	rows.Reporter        // of the record that is being read
}

// problemOf reports what is wrong with a record that has no line.
func (s *source) problemOf(record, format string, args ...any) {
	s.Report(codec.Problem{Record: record, Reason: fmt.Sprintf(format, args...)})
}

// lines calls each for the records of a file of JSON lines.
func (s *source) lines(text []byte, each func(o rows.Object)) {
	rows.Records(text, s.Report, func(o rows.Object, line int) {
		s.Place.Line = line
		each(o)
	})
	s.Place.Line = 0
}

// decoder reads the sessions of a text, which it does not retain: nil if nothing in it is of the program.
type decoder func(from *source, text []byte) []*codec.Session

// reading completes how the files of a program's own record are read. Such a file may be a database, too.
func (decode decoder) reading(f codec.Reading) codec.Reading {
	f.Transcript, f.Noun = true, "transcript"
	f.ReadText = func(path string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
		all := decode(&source{path, rows.Reporter{Report: report}}, text)
		if all == nil {
			return nil, errors.New("there is nothing of this format in it that names a session")
		}
		return all, nil
	}
	if inDatabase, lines := f.ReadPath, f; inDatabase != nil {
		lines.ReadPath = nil
		f.ReadPath = func(ctx context.Context, path string, wanted codec.Wanted,
			report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			if ok, _ := rows.IsDatabase(path); !ok {
				return lines.DecodeFile(ctx, path, wanted, report)
			}
			return inDatabase(ctx, path, wanted, report)
		}
	}
	return f
}

// database is one state of a database, and who wants its sessions.
type database struct {
	*source
	conn   *sqlite.Conn
	wanted codec.Wanted
	yield  func(*codec.Session) bool
	// ended returns the error of the context.
	ended func() error
}

// inDatabase yields what read makes of a database. what names its sessions.
func inDatabase(what string, read func(db *database) error) codec.FileDecoder {
	return func(ctx context.Context, path string, wanted codec.Wanted,
		report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return codec.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
			conn, err := rows.SnapshotDatabase(ctx, path)
			if err == nil {
				defer conn.Close()
				err = read(&database{&source{path, rows.Reporter{Report: report}}, conn, wanted, yield, ctx.Err})
			}
			if err != nil {
				return fmt.Errorf("read %s in %s: %w", what, path, err)
			}
			return nil
		})
	}
}

// each yields the session that decode makes of each row, nil for none.
func (db *database) each(list []rows.Object, decode func(row rows.Object) *codec.Session) error {
	for _, row := range list {
		s := decode(row)
		if err := db.ended(); err != nil {
			return err
		}
		if s != nil && !db.yield(s) {
			return nil
		}
	}
	return nil
}

// wants reports whether a session is wanted whose version is that of the row, and of what the queries give for it.
func (db *database) wants(id string, row rows.Object, queries ...string) bool {
	if db.wanted == nil {
		return true
	}
	sum := sha256.New()
	for _, query := range queries {
		more, _ := db.table(query, id) // what cannot be read is reported with the session
		for _, o := range more {
			sum.Write(o.JSON())
		}
	}
	sum.Write(row.JSON())
	return db.wanted(id, hex.EncodeToString(sum.Sum(nil)[:8]))
}

// table returns the rows of a query as objects of their columns, as far as they can be
// read. Columns and tables have been added over time, and nothing binds a program to their types.
func (db *database) table(query string, args ...any) (all []rows.Object, err error) {
	err = sqlitex.Execute(db.conn, query, &sqlitex.ExecOptions{
		Args: args,
		ResultFunc: func(stmt *sqlite.Stmt) error {
			var o rows.Object
			for i := range stmt.ColumnCount() {
				switch name := stmt.ColumnName(i); stmt.ColumnType(i) {
				case sqlite.TypeInteger:
					o.Set(name, stmt.ColumnInt64(i))
				case sqlite.TypeFloat:
					if f := stmt.ColumnFloat(i); !math.IsNaN(f) && !math.IsInf(f, 0) {
						o.Set(name, f)
					}
				case sqlite.TypeText, sqlite.TypeBlob:
					o.Set(name, valid(stmt.ColumnText(i)))
				}
			}
			all = append(all, o)
			return nil
		},
	})
	if err != nil && strings.Contains(err.Error(), "no such table") {
		err = nil
	}
	return all, err
}

// content is a column of JSON that is an array, nil for another, which is reported.
func (db *database) content(row rows.Object, column string) json.RawMessage {
	content, err := rows.Value([]byte(row.Text(column)))
	if err != nil || len(content) == 0 || content[0] != '[' {
		db.Problem("its %s is not a JSON array: left out", column)
		return nil
	}
	return content
}

// valid replaces bytes that are not UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// parse is [rows.Parse] of a text that may have bytes that are not UTF-8.
func parse(text []byte) (rows.Object, error) {
	return rows.Parse(bytes.ToValidUTF8(text, []byte("\uFFFD")))
}

// object reads the file of a JSON object below the directory of the source, and reports one that cannot be read.
func (s *source) object(name string) rows.Object {
	text, err := codec.ReadFile(filepath.Join(s.path, name))
	var o rows.Object
	if err == nil {
		o, err = parse(text)
	}
	if err != nil {
		name = filepath.ToSlash(filepath.Join(filepath.Base(s.path), name))
		s.Report(codec.Problem{File: name, Reason: "it is left out: " + err.Error()})
	}
	return o
}

// nameOf is the name of a file without its extension, by which programs name a session; "" without a file.
func nameOf(path string) string {
	if path == "" {
		return ""
	}
	return valid(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
}

// dirOf is the name of the directory of a file, "" where it is not known.
func dirOf(path string) string {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return ""
	}
	return valid(filepath.Base(dir))
}

// beside reads a small file in the directory of the source. One that is missing or too large
// is empty: what it has adds to the session, and nothing depends on it.
func (s *source) beside(name string) []byte {
	const maximum = 1 << 20
	file := filepath.Join(filepath.Dir(s.path), name)
	if info, err := os.Stat(file); s.path == "" || err != nil || !info.Mode().IsRegular() || info.Size() > maximum {
		return nil
	}
	text, _ := os.ReadFile(file)
	return text
}

// siblings are the paths of files in the directory of another.
func siblings(path string, names ...string) (all []string) {
	for _, name := range names {
		all = append(all, filepath.Join(filepath.Dir(path), name))
	}
	return all
}

// listed is an object of an array, with its line.
type listed struct {
	rows.Object
	line int
}

// list reads the objects of an array: that which text is, or else the value of key in the object that text is, of which
// it returns the rest. Of a text that was cut off, it reads what is there.
func (s *source) list(text []byte, key string) (rest rows.Object, all []listed) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	doc, counted := string(s.Valid(text)), 0
	s.Place.Line = 1
	value := func(i int) (v json.RawMessage, end int) {
		s.Place.Line += strings.Count(doc[counted:i], "\n")
		counted = i
		if end = jsonscan.Value(doc, i, rows.MaxDepth); end >= 0 {
			v, _ = rows.Value([]byte(doc[i:end])) // it is one
		}
		return v, end
	}
	element := func(_ jsonscan.Key, i int) int {
		v, end := value(i)
		if o, err := rows.Share(v); end >= 0 && err != nil {
			s.Problem("is not a message: left out: %v", err)
		} else if end >= 0 {
			all = append(all, listed{o, s.Place.Line})
		}
		return end
	}
	member := func(at jsonscan.Key, i int) int {
		name, _ := rows.Text(json.RawMessage(doc[at.From:at.To]))
		if name == key && doc[i] == '[' {
			return jsonscan.Container(doc, i, element)
		}
		v, end := value(i)
		rest.Set(name, v)
		return end
	}
	begin := jsonscan.Space(doc, 0)
	end := ^begin
	if strings.HasPrefix(doc[begin:], "[") {
		end = jsonscan.Container(doc, begin, element)
	} else if strings.HasPrefix(doc[begin:], "{") {
		end = jsonscan.Container(doc, begin, member)
	}
	if end < 0 {
		begin = max(begin, counted)
		s.Place.Line += strings.Count(doc[counted:begin], "\n")
		_, err := rows.Value([]byte(doc[begin:]))
		s.Problem("the file is damaged from here on: the rest is left out: %v", err)
	}
	s.Place.Line = 0
	return rest, all
}

// unnamed is the id of a session that nothing names, which follows from its first record.
func unnamed(program string, first rows.Object) string {
	sum := sha256.Sum256(first.JSON())
	return program + "-" + hex.EncodeToString(sum[:8])
}

// A count is at most maxCount, so that no sum of counts overflows, and a time maxMoment, in Unix milliseconds.
const (
	maxCount  = 1 << 40
	maxMoment = 1 << 47
)

// number reads a count, 0 if it is not one, and moment a time in Unix milliseconds, of the first of the keys that o has.
// A key such as cache.read is that of an inner object.
func number(o rows.Object, keys ...string) int64 { return bounded(firstOf(o, keys...), maxCount) }
func moment(o rows.Object, keys ...string) int64 { return bounded(firstOf(o, keys...), maxMoment) }

// instant reads a time in Unix seconds, or in milliseconds, as other versions of a program have it.
func instant(o rows.Object, key string) int64 {
	const year5138 = 100_000_000_000
	n := moment(o, key)
	if n < year5138 {
		n *= 1000
	}
	return n
}

// secondsOf reads a time in seconds, which may have a fraction, as Unix milliseconds, 0 if it is not one.
func secondsOf(v json.RawMessage) int64 {
	var seconds float64
	if json.Unmarshal(v, &seconds) != nil || !(seconds > 0) || seconds > maxMoment/1000 {
		return 0
	}
	return int64(math.Round(seconds * 1000))
}

func bounded(raw json.RawMessage, maximum int64) int64 {
	n, err := json.Number(raw).Int64()
	if err != nil || n > maximum {
		return 0
	}
	return max(0, n)
}

// milli reads a time, of one without a zone in UTC, as Unix milliseconds, 0 if it is not one.
func milli(text string) int64 {
	at, _ := rows.ParseTime(text)
	return at
}

// localMilli is milli in the zone of this machine.
func localMilli(text string) int64 {
	at, _ := rows.ParseTimeIn(text, time.Local)
	return at
}

// counts are the keys of a program's counts of tokens, "" for what it does not count.
type counts struct{ input, output, reasoning, read, write string }

// anthropicCounts are those of the API, and camelCounts those of several programs.
var (
	anthropicCounts = counts{"input_tokens", "output_tokens", "", "cache_read_input_tokens",
		"cache_creation_input_tokens"}
	camelCounts = counts{"inputTokens", "outputTokens", "reasoningTokens", "cacheReadTokens", "cacheWriteTokens"}
)

// of reads counts that each stand for themselves.
func (k counts) of(o rows.Object) session.Usage {
	return session.Usage{Input: number(o, k.input), Output: number(o, k.output), Reasoning: number(o, k.reasoning),
		CacheRead: number(o, k.read), CacheWrite: number(o, k.write)}
}

// inclusive reads counts whose input includes the cache, and whose output includes the reasoning.
func (k counts) inclusive(o rows.Object) session.Usage {
	u := k.of(o)
	u.Input, u.Reasoning = max(0, u.Input-u.CacheRead-u.CacheWrite), min(u.Reasoning, u.Output)
	u.Output -= u.Reasoning
	return u
}

// capped is inclusive for counts of which servers report more than there is: no more of the input was cached than there
// was.
func (k counts) capped(o rows.Object) session.Usage {
	u := k.inclusive(o)
	input := number(o, k.input)
	u.CacheRead = min(u.CacheRead, input)
	u.CacheWrite = min(u.CacheWrite, input-u.CacheRead)
	return u
}

// without takes from u what another message of the session has used already.
func without(u, of session.Usage) session.Usage {
	return session.Usage{
		Input: max(0, u.Input-of.Input), Output: max(0, u.Output-of.Output),
		Reasoning: max(0, u.Reasoning-of.Reasoning),
		CacheRead: max(0, u.CacheRead-of.CacheRead), CacheWrite: max(0, u.CacheWrite-of.CacheWrite),
	}
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
	if v := rows.Unquoted(raw); len(v) > 0 && v[0] == '{' {
		return v
	}
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// contents are the blocks of a message, of which programs write one form or another: a text, a block, or a list of
// both.
func contents(raw json.RawMessage) []rows.Object {
	list := rows.Elements(raw)
	if list == nil && len(raw) > 0 && string(raw) != `""` {
		list = []json.RawMessage{raw}
	}
	var all []rows.Object
	for _, v := range list {
		if text, ok := rows.Text(v); ok {
			all = append(all, rows.Of("text", text))
		} else if o, err := rows.Share(v); err == nil {
			all = append(all, o)
		}
	}
	return all
}

// joined are the texts of blocks.
func joined(blocks []rows.Object, separator string) string {
	var all []string
	for _, block := range blocks {
		if text := cmp.Or(block.Text("text"), block.Text("content")); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, separator)
}

// textWithin is the text in a value: it is one itself, or those in the objects of a tree are, as VS Code renders prompts.
func textWithin(v json.RawMessage) (text string) {
	if text, isText := rows.Text(v); isText {
		return text
	}
	for _, inner := range rows.Elements(v) {
		text += textWithin(inner)
	}
	o, _ := rows.Share(v)
	for _, inner := range o.Only("text", "value", "node", "children") {
		text += textWithin(inner.Value)
	}
	return text
}

// resultOf is the output of a tool: the text where it is one block of text.
func resultOf(content json.RawMessage) json.RawMessage {
	if block := oneBlock(rows.Elements(content)...); block.Text("type") == "text" && block.Has("text") {
		return block.Get("text")
	}
	return content
}

// withFiles is the output of a tool that is a text, or with files that it returned beside that a list of blocks.
func withFiles(text json.RawMessage, files ...rows.Object) json.RawMessage {
	if len(files) == 0 {
		return text
	}
	return rows.Raw(append([]rows.Object{rows.Of("type", "text", "text", text)}, files...))
}

// valueOf is the output of a tool: where it is one block, in a list or by itself, the value of the first of the keys
// in it.
func valueOf(content json.RawMessage, keys ...string) json.RawMessage {
	list := rows.Elements(content)
	if list == nil {
		list = append(list, content)
	}
	if value := firstOf(oneBlock(list...), keys...); value != nil {
		return value
	}
	return content
}

// firstOf is the value of the first of the keys that o has, nil for none. A key such as error.message is that of an
// inner object.
func firstOf(o rows.Object, keys ...string) json.RawMessage {
	for _, key := range keys {
		in := o
		for outer, inner, ok := strings.Cut(key, "."); ok; outer, inner, ok = strings.Cut(key, ".") {
			in, key = in.Object(outer), inner
		}
		if in.Has(key) {
			return in.Get(key)
		}
	}
	return nil
}

// oneBlock is the only one of a list of blocks, nil if there are more, or none.
func oneBlock(list ...json.RawMessage) rows.Object {
	if len(list) != 1 {
		return nil
	}
	return rows.Read(string(list[0]))
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

func fileOf(mediaType, url string) rows.Object { return rows.FilePart(mediaType, "", url) }

// dataFile is a file of which there is the content in base64, or a URL.
func dataFile(mediaType, data string) rows.Object {
	if scheme, _, ok := strings.Cut(data, ":"); ok && !strings.ContainsAny(scheme, "/+=") {
		return fileOf(mediaType, data)
	}
	return fileOf(mediaType, "data:"+mediaType+";base64,"+data)
}

// urlFile is a file of a URL. One that has the content in it has its type, too.
func urlFile(mediaType, url string) rows.Object {
	inlined, isInline := strings.CutPrefix(url, "data:")
	if media, _, found := strings.Cut(inlined, ";"); found && isInline {
		mediaType = media
	}
	return fileOf(mediaType, url)
}

// uriPath is the path of a URI.
func uriPath(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	if dir := strings.TrimPrefix(u.Path, "/"); len(dir) > 1 && dir[1] == ':' {
		return valid(dir) // of Windows
	}
	return valid(u.Path)
}

// octets is the type of a file of which the type is not known.
const octets = "application/octet-stream"

// partOf is a block of a message as a part of ours: a text, or an image or another file as the APIs of models, the
// AI SDK and programs of their own have them. A block for which there is no part is kept word for word.
func partOf(block rows.Object) rows.Object {
	kind, media := block.Text("type"), cmp.Or(block.Text("mediaType"), block.Text("mimeType"))
	source, inline, file := block.Object("source"), block.Object("inlineData"), block.Object("fileData")
	form, _, _ := strings.Cut(strings.TrimPrefix(kind, "input_"), "_") // image of image_url
	switch url, _ := rows.Text(firstOf(block, kind+".url", "image_url")); {
	case url != "":
		return urlFile(strings.TrimSuffix(form, "Url")+"/*", url)
	case kind == "think" || kind == "reasoning":
		return rows.TextPart("reasoning", cmp.Or(block.Text("think"), block.Text("text")))
	case block.Has("text") && slices.Contains([]string{"", "text", "input_text", "output_text"}, kind):
		return rows.TextPart("text", block.Text("text"))
	case source.Text("type") == "base64" && source.Text("media_type") != "":
		return dataFile(source.Text("media_type"), source.Text("data"))
	case source.Text("type") == "url" && kind == "image":
		return fileOf("image/*", source.Text("url"))
	case inline.Text("mimeType") != "":
		return dataFile(inline.Text("mimeType"), inline.Text("data"))
	case file.Text("fileUri") != "":
		return fileOf(cmp.Or(file.Text("mimeType"), octets), file.Text("fileUri"))
	case kind == "image" && block.Text("image") != "":
		return dataFile(cmp.Or(media, "image/*"), block.Text("image"))
	case (kind == "file" || media != "" && (kind == "image" || kind == "document")) && block.Text("data") != "":
		return dataFile(cmp.Or(media, octets), block.Text("data"))
	}
	return blockPart(block)
}

// partsOf are the parts of blocks, without empty texts.
func partsOf(blocks ...rows.Object) (parts []rows.Object) {
	for _, block := range blocks {
		if p := partOf(block); string(p.Get("text")) != `""` {
			parts = append(parts, p)
		}
	}
	return parts
}

func blockPart(block rows.Object) rows.Object { return rows.DataPart("data-block", block) }

// block adds a block of an answer as the APIs of models and the AI SDK have them. Reasoning that is encrypted is left
// out, and so is an empty text.
func (b *builder) block(block rows.Object) {
	text := cmp.Or(block.Text("thinking"), block.Text("text"))
	switch call := block.Object("functionCall"); block.Text("type") {
	case "thinking", "reasoning":
		b.text("reasoning", text)
	case "redacted_thinking", "redactedThinking", "redacted-reasoning":
	case "tool_use":
		b.call(block.Text("name"), block.Text("id"), inputOf(block.Get("input")))
	case "tool-call":
		b.call(block.Text("toolName"), block.Text("toolCallId"), inputOf(firstOf(block, "args", "input")))
	default:
		if call != nil {
			b.call(call.Text("name"), call.Text("id"), call.Get("args"))
		} else if block.True("thought") {
			b.text("reasoning", text)
		} else {
			b.add(partsOf(block)...)
		}
	}
}

// between is the text between two others.
func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	inner, _, _ := strings.Cut(rest, to)
	return inner
}
