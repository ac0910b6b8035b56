package modelapi

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"strings"
	"unicode/utf8"
)

// Answer is a model's answer as it arrives. Calls of tools begin when the answer has ended, because then the agent
// has them.
type Answer struct {
	// Sink has what arrives. Without one, blocks keep their texts.
	Sink Sink
	// Budget is how many bytes of content are still kept, Size of how many there are.
	Budget, Size int

	Blocks          []*Block
	ID, Model, Stop string
	Usage           *Usage // nil if the provider sends none

	// Ended reports that the provider stated the end, Complete that nothing follows it.
	Ended, Complete bool
	// Paused reports that the client sends the same conversation again to have the
	// answer go on; Continuation is the token that it does so with, if it has one. That of an answer which the model
	// makes in the background is its id: see [BackgroundOf].
	Paused       bool
	Continuation string
	// Err is the error that the provider reports.
	Err error
}

// Sink takes an answer as it arrives.
type Sink interface {
	// Text takes the next piece of a block of text or reasoning. What it keeps it takes by [Answer.Take].
	Text(b *Block, text string)
	// Closed is called when nothing follows in a block.
	Closed(b *Block)
	// Output takes the output of a call that the provider executed.
	Output(id string, output json.RawMessage, failed bool)
	// File takes a file that the model made.
	File(f File)
}

// Block is a part of an answer: a text, some reasoning or a call.
type Block struct {
	Kind     Kind
	Open     bool
	ID, Name string
	// Server reports that the provider executes the call, Spoken that a text is of audio: later requests have an id for it.
	Server, Spoken bool
	// Signature and Redacted are those of Anthropic's reasoning.
	Signature, Redacted string

	key int
	// wrote reports that some text came.
	wrote bool
	// content is the input of a call as it arrives, or a text that is kept; isText reports of an input that it is not
	// JSON.
	content []byte
	isText  bool
}

// keeper is the sink of an answer that has none.
type keeper struct{ *Answer }

func (k keeper) Text(b *Block, text string)         { b.content = append(b.content, k.Take(text)...) }
func (keeper) Closed(*Block)                        {}
func (keeper) Output(string, json.RawMessage, bool) {}
func (keeper) File(File)                            {}

// Input returns the input of a call as JSON.
func (b *Block) Input() json.RawMessage {
	if b.isText {
		return Quote(string(b.content))
	}
	return Input(string(b.content))
}

// Content returns the input of a call as far as it has arrived, or a text that was kept.
func (b *Block) Content() string { return string(b.content) }

// maxBlocks bounds the parts of an answer; what is more is not kept.
const maxBlocks = 4096

// block returns the block of the key, which the provider counts or names by.
func (a *Answer) block(key int, kind Kind) *Block {
	for i := len(a.Blocks) - 1; i >= 0; i-- {
		if b := a.Blocks[i]; b.key == key && b.Kind == kind {
			return b
		}
	}
	b := &Block{key: key, Kind: kind, Open: true}
	if len(a.Blocks) < maxBlocks {
		a.Blocks = append(a.Blocks, b)
	} else {
		b.Open = false
	}
	return b
}

// next returns the last block if it is of the kind and open, or a new one: for APIs that do not number blocks.
func (a *Answer) next(kind Kind) *Block {
	if n := len(a.Blocks); n > 0 {
		if b := a.Blocks[n-1]; b.Kind == kind && b.Open && kind != Call {
			return b
		}
		a.close(a.Blocks[n-1])
	}
	return a.block(len(a.Blocks), kind)
}

// add appends to a block: to its text, or to the input of a call.
func (a *Answer) add(b *Block, text string) {
	switch {
	case text == "" || !b.Open:
	case b.Kind == Call:
		b.content = append(b.content, a.Take(text)...)
	default:
		b.wrote = true
		a.Sink.Text(b, text)
	}
}

// Take returns as much of a text as the budget allows.
func (a *Answer) Take(text string) string {
	if len(text) > a.Budget {
		text = text[:a.Budget]
		for { // without half a character
			if r, size := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || size != 1 {
				break
			}
			text = text[:len(text)-1]
		}
		a.Budget = len(text)
	}
	a.Budget -= len(text)
	a.Size += len(text)
	return text
}

// close ends a block: nothing follows in it.
func (a *Answer) close(b *Block) {
	if b.Open {
		b.Open = false
		a.Sink.Closed(b)
	}
}

// closeAt ends the block with a key, of whichever kind, closeAll every block.
func (a *Answer) closeAt(key int) {
	for _, b := range a.Blocks {
		if b.key == key {
			a.close(b)
		}
	}
}

func (a *Answer) closeAll() {
	for _, b := range a.Blocks {
		a.close(b)
	}
}

// whole closes a block of text whose text is known as a whole. What was streamed of it is
// not added again, and what is kept of it is replaced.
func (a *Answer) whole(b *Block, text string) {
	if !b.wrote || len(b.content) > 0 {
		b.content = nil
		a.add(b, text)
	}
	a.close(b)
}

// call adds a call that is whole.
func (a *Answer) call(b *Block, id, name string, input json.RawMessage, server bool) {
	b.ID, b.Name, b.Server = id, name, server
	if b.content = input; !server {
		b.content = []byte(a.Take(string(input)))
	}
	a.close(b)
}

// fail states that the provider reports an error.
func (a *Answer) fail(kind, text string) {
	if a.Err == nil {
		a.Err = &Error{Kind: kind, Text: cmp.Or(text, kind, "the provider reports an error")}
	}
}

// failed takes the error that an event or a body reports, if it does.
func (a *Answer) failed(o object) bool {
	e := o.get("error")
	if e != "" {
		a.fail(errorOf(e))
	}
	return e != ""
}

// Error is an error that a provider reports.
type Error struct{ Kind, Text string }

func (e *Error) Error() string { return e.Text }

// ErrorType returns the provider's name of the error.
func (e *Error) ErrorType() string { return cmp.Or(e.Kind, "api_error") }

// ErrorOf returns the kind and the text of the error that the body of a response without an answer has. ok is false if
// it is not JSON.
func ErrorOf(body []byte) (kind, text string, ok bool) {
	v := trimmed(body)
	if list := v.elements(); len(list) > 0 {
		v = list[0].value // Gemini
	}
	o := v.object()
	if e := o.get("error"); e != "" {
		kind, text = errorOf(e)
	} else {
		kind, text = o.text("__type"), o.text("message")
	}
	return kind, text, o != nil
}

// errorOf returns the kind and the text of an error, which is an object or a text.
func errorOf(v value) (kind, text string) {
	if v.isText() {
		return "", v.text()
	}
	e := v.object()
	return e.text("type", "code", "status"), e.text("message")
}

// Basis is what a provider counts by.
type Basis byte

// The bases. Inclusive counts have the cache in the input and the reasoning in the output, exclusive ones have
// neither. Gemini's have the cache in the input, and the reasoning beside the output.
const (
	Inclusive Basis = iota
	Exclusive
	GeminiBasis
)

// Usage is a count of tokens as a provider sends it, which Raw has.
type Usage struct {
	Basis                                           Basis
	Input, Output, Reasoning, CacheRead, CacheWrite int64
	ToolPrompt                                      int64 // Gemini's, beside the input
	CostUSD                                         *float64
	Raw                                             json.RawMessage
}

// Add returns the usage of an answer that was interrupted, and of the rest; only Gemini's are.
func (u *Usage) Add(rest *Usage) *Usage {
	if u == nil || u.Basis != GeminiBasis {
		return rest
	}
	if rest == nil || rest.Basis != GeminiBasis {
		return u
	}
	sum := *rest
	sum.Input, sum.Output, sum.Reasoning = sum.Input+u.Input, sum.Output+u.Output, sum.Reasoning+u.Reasoning
	sum.CacheRead, sum.ToolPrompt = sum.CacheRead+u.CacheRead, sum.ToolPrompt+u.ToolPrompt
	return &sum
}

// openAIUsage reads OpenAI's counts, whose names differ in two words; nil if it has none.
func openAIUsage(v value, in, out string) *Usage {
	u := v.object()
	if u.get(in+"_tokens") == "" {
		return nil
	}
	cost := u.at("cost.total_cost cost").number() // Perplexity's and OpenRouter's
	return &Usage{
		CostUSD: cost, Input: u.count(in + "_tokens"), Output: u.count(out + "_tokens"),
		Reasoning:  u.count(out + "_tokens_details.reasoning_tokens"),
		CacheRead:  u.count(in + "_tokens_details.cached_tokens"),
		CacheWrite: u.count(in + "_tokens_details.cache_write_tokens"), Raw: v.raw(),
	}
}

// Stream splits a stream into events as its bytes arrive.
type Stream interface {
	// Feed takes the next bytes and calls emit for each event that they complete. What
	// emit is given is valid until it returns.
	Feed(p []byte, emit func(name string, data []byte))
	// End takes the end of the stream.
	End(emit func(name string, data []byte))
}

// StreamOf returns the stream of a content type, nil if that is no stream. Events of more than so many bytes are
// skipped.
func StreamOf(contentType string, most int) Stream {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/event-stream":
		return &sse{max: most}
	case "application/x-ndjson":
		return &sse{max: most, lines: true}
	case "application/vnd.amazon.eventstream":
		return &frames{max: most}
	}
	return nil
}

// StreamIn returns the stream that a body is by its head, or else by its content type, nil if it is a document. It is
// sure if no more of the body is needed to know that; all reports that there is no more.
func StreamIn(head []byte, contentType string, all bool, most int) (s Stream, sure bool) {
	typed := StreamOf(contentType, most)
	text := bytes.TrimLeft(head, " \t\r\n")
	for _, field := range []string{"data:", "event:", "id:", "retry:", ":"} {
		if bytes.HasPrefix(text, []byte(field)) {
			return &sse{max: most}, true
		} else if !all && strings.HasPrefix(field, string(text)) {
			return nil, false
		}
	}
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	rest = bytes.TrimLeft(rest, " \t\r\n")
	switch s, _ := typed.(*sse); {
	case len(line) == 0 || line[0] != '{' || s != nil && s.lines:
	case len(rest) == 0:
		return nil, all || len(head) > 4<<10
	case !json.Valid(line):
		return nil, true
	case rest[0] == '{':
		return &sse{max: most, lines: true}, true
	}
	return typed, true
}

// sse splits server-sent events, or lines that are events. An event of more than max bytes is skipped.
type sse struct {
	max   int
	lines bool
	// line is the line that has not ended, data and name are what the event has so far.
	line, data []byte
	name       string
	some       bool // some line of the event has data
	skip       bool // the event is too large
}

func (s *sse) Feed(p []byte, emit func(string, []byte)) {
	for len(p) > 0 {
		piece, rest, ended := bytes.Cut(p, []byte("\n"))
		if s.skip = s.skip || len(s.line)+len(s.data)+len(piece) > s.max; s.skip {
			const enough = 2 // to know an empty line
			piece = piece[:min(len(piece), max(0, enough-len(s.line)))]
		}
		s.line = append(s.line, piece...)
		if p = rest; ended {
			s.endLine(emit)
		}
	}
}

// endLine takes a line that has ended. An empty one ends the event.
func (s *sse) endLine(emit func(string, []byte)) {
	line := bytes.TrimSuffix(s.line, []byte("\r"))
	s.line = s.line[:0]
	if s.lines && len(line) > 0 {
		s.data, s.some, line = append(s.data, line...), true, nil
	}
	if len(line) == 0 {
		if s.some && !s.skip {
			emit(s.name, s.data)
		}
		s.name, s.data, s.some, s.skip = "", s.data[:0], false, false
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		s.name = string(value)
	case "data":
		if s.some {
			s.data = append(s.data, '\n')
		}
		s.data, s.some = append(s.data, value...), true
	}
}

// End ends the last line, and the event that it is of.
func (s *sse) End(emit func(string, []byte)) {
	if len(s.line) > 0 {
		s.endLine(emit)
	}
	s.endLine(emit)
}

// frames splits the binary event streams of AWS: messages of a prelude (lengths and their checksum), headers, a payload
// and a checksum. What follows a message of more than max bytes, or one that is damaged, is not read.
type frames struct {
	max int
	buf []byte
	bad bool
}

const preludeSize = 12

func (f *frames) Feed(p []byte, emit func(string, []byte)) {
	all := append(f.buf, p...)
	rest := all
	for len(rest) >= preludeSize && !f.bad {
		total, headers := binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])
		if crc32.ChecksumIEEE(rest[:8]) != binary.BigEndian.Uint32(rest[8:]) || int64(total) > int64(f.max) ||
			total < preludeSize+4 || headers > total-preludeSize-4 {
			f.bad = true
			break
		}
		if len(rest) < int(total) {
			break
		}
		f.message(rest[:total], emit)
		rest = rest[total:]
	}
	switch {
	case f.bad:
		f.buf = nil
	case len(rest) < len(all):
		f.buf = append(all[:0], rest...)
	default:
		f.buf = all
	}
}

func (f *frames) End(func(string, []byte)) {}

// message takes a message that is whole.
func (f *frames) message(m []byte, emit func(string, []byte)) {
	end := len(m) - 4
	if crc32.ChecksumIEEE(m[:end]) != binary.BigEndian.Uint32(m[end:]) {
		f.bad = true
		return
	}
	size := int(binary.BigEndian.Uint32(m[4:]))
	headers, payload := m[preludeSize:preludeSize+size], m[preludeSize+size:end]
	kind, name, exception := frameHeaders(headers)
	switch {
	case kind == "exception" || kind == "error":
		data, err := json.Marshal(map[string]map[string]string{
			"error": {"type": exception, "message": parse(payload).text("message")},
		})
		if err == nil {
			emit("exception", data)
		}
	case name == "chunk": // of InvokeModel
		if data, err := base64.StdEncoding.DecodeString(parse(payload).text("bytes")); err == nil {
			emit("", data)
		}
	default:
		emit(name, payload)
	}
}

// frameHeaders returns the values of the headers that are read. All headers are texts.
func frameHeaders(h []byte) (kind, event, exception string) {
	const text = 7
	for len(h) > 1 {
		n := int(h[0])
		if len(h) < n+4 || h[n+1] != text {
			return
		}
		end := n + 4 + int(binary.BigEndian.Uint16(h[n+2:]))
		if len(h) < end {
			return
		}
		name, value := h[1:n+1], string(h[n+4:end])
		switch string(name) {
		case ":message-type":
			kind = value
		case ":event-type":
			event = value
		case ":exception-type", ":error-code":
			exception = value
		}
		h = h[end:]
	}
	return
}
