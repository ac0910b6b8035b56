package modelhttp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"hash"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// errTruncated is the error of a stream that ended without stating that the answer had.
var errTruncated = errors.New("the answer's stream ended early")

// answer is a model's answer as it arrives. The text goes on to the session at once; tool
// calls begin when the answer has ended, because then the agent has them.
type answer struct {
	to writer
	// shape is that of the events that have added text; nil has each event decoded.
	shape *shape
	// effects counts what the event did that another one like it would do again. grew is the
	// block that it added text to, if any, and growth the text.
	effects int
	grew    *block
	growth  []byte
	// budget is how many bytes of content are still recorded.
	budget int
	size   int // of the content that is recorded

	blocks []*block
	// content is what a later request that has the answer in its history is known by;
	// others are those of further choices, by index.
	content content
	others  map[int]*choice
	// head is the beginning of the text, of headSize bytes at most.
	head     []byte
	headSize int

	id, model, stop string
	usage           agenttrace.Usage
	rawUsage        json.RawMessage
	// counts are the members of a usage that comes in pieces.
	counts map[string]json.RawMessage

	// ended reports that the provider stated the end, complete that nothing follows it.
	ended, complete bool
	// paused reports that the client sends the same conversation again to have the
	// answer go on; continuation is the token that it does so with, if it has one.
	paused       bool
	continuation string
	err          error
}

// choice is an answer beside the first one.
type choice struct {
	content content
	text    []byte
}

// writer is where an answer is recorded. The zero writer drops it.
type writer struct {
	ctx  context.Context
	turn *agenttrace.Turn
	call *agenttrace.ModelCall
	// side reports that only the usage is recorded.
	side bool
	// served are the calls that the provider executes, by id.
	served map[string]*agenttrace.ToolCall
}

type blockKind byte

const (
	textBlock blockKind = iota
	reasoningBlock
	callBlock
)

// block is a part of an answer.
type block struct {
	key    int
	kind   blockKind
	stream *agenttrace.TextStream
	open   bool
	// wrote reports that some text came.
	wrote    bool
	id, name string
	// input is that of a call as it arrives; isText reports that it is not JSON.
	input  []byte
	isText bool
	// server reports that the provider executes the call.
	server bool
	ctx    context.Context // of a call that the agent executes
}

// maxBlocks bounds the parts of an answer; what is more is not recorded.
const maxBlocks = 4096

// block returns the block of the key, which the provider counts or names by.
func (a *answer) block(key int, kind blockKind) *block {
	for i := len(a.blocks) - 1; i >= 0; i-- {
		if b := a.blocks[i]; b.key == key && b.kind == kind {
			return b
		}
	}
	a.effects++
	b := &block{key: key, kind: kind, open: true}
	if len(a.blocks) < maxBlocks {
		a.blocks = append(a.blocks, b)
	} else {
		b.open = false
	}
	return b
}

// next returns the last block if it is of the kind and open, or a new one: for APIs that do
// not number blocks.
func (a *answer) next(kind blockKind) *block {
	if n := len(a.blocks); n > 0 {
		if b := a.blocks[n-1]; b.kind == kind && b.open && kind != callBlock {
			return b
		}
		a.close(a.blocks[n-1])
	}
	return a.block(len(a.blocks), kind)
}

// text appends to a block of text or reasoning.
func (a *answer) text(b *block, text []byte) {
	if len(text) == 0 || !b.open {
		return
	}
	if b.kind == textBlock {
		addText(&a.content, text)
		a.head = append(a.head, text[:min(len(text), a.headSize-len(a.head))]...)
	}
	b.wrote = true
	a.grew, a.growth = b, text
	text = a.take(text)
	if len(text) == 0 || a.to.call == nil || a.to.side {
		return
	}
	if b.stream == nil {
		if b.kind == reasoningBlock {
			b.stream = a.to.call.StreamReasoning()
		} else {
			b.stream = a.to.call.StreamText()
		}
	}
	_, _ = b.stream.Write(text) // never fails
}

// add appends to a block of any kind.
func (a *answer) add(b *block, text []byte) {
	if b.kind == callBlock {
		a.arguments(b, text)
	} else {
		a.text(b, text)
	}
}

// unmarshal is [unmarshal] for an event or a body. Of an event it notes where its values are.
func (a *answer) unmarshal(data []byte, into any) error {
	if a.shape == nil {
		return unmarshal(data, into)
	}
	return a.shape.unmarshal(data, into)
}

// take returns as much of a text as the budget allows.
func (a *answer) take(text []byte) []byte {
	if len(text) > 0 {
		a.effects++
	}
	if len(text) > a.budget {
		text = text[:a.budget]
		for len(text) > 0 && !utf8.Valid(text[max(0, len(text)-utf8.UTFMax):]) {
			text = text[:len(text)-1]
		}
		a.budget = 0
	} else {
		a.budget -= len(text)
	}
	a.size += len(text)
	return text
}

// arguments appends to the input of a call.
func (a *answer) arguments(b *block, text []byte) {
	if b.open {
		a.grew, a.growth = b, text
		b.input = append(b.input, a.take(text)...)
	}
}

// close ends a block: nothing follows in it.
func (a *answer) close(b *block) {
	if !b.open {
		return
	}
	b.open = false
	if b.stream != nil {
		_ = b.stream.Close() // never fails
	}
	if b.kind != callBlock {
		return
	}
	if !b.server {
		a.content.call(b.id, b.name)
		return
	}
	a.serve(b)
}

// closeAt ends the block with a key, of whichever kind, closeAll every block.
func (a *answer) closeAt(key int) {
	for _, b := range a.blocks {
		if b.key == key {
			a.close(b)
		}
	}
}

func (a *answer) closeAll() {
	for _, b := range a.blocks {
		a.close(b)
	}
}

// whole closes a block of text whose text is known as a whole. What was streamed of it is
// not added again.
func (a *answer) whole(b *block, text string) {
	if !b.wrote {
		a.text(b, []byte(text))
	}
	a.close(b)
}

// serve begins a call that the provider executes.
func (a *answer) serve(b *block) {
	if a.to.turn == nil || a.to.side {
		return
	}
	_, tool := a.to.turn.StartTool(a.to.ctx, agenttrace.ToolOptions{
		ID: b.id, Name: b.name, Input: b.value(), ProviderExecuted: true,
	})
	if a.to.served == nil {
		a.to.served = make(map[string]*agenttrace.ToolCall)
	}
	a.to.served[b.id] = tool
}

// served ends a call that the provider executed.
func (a *answer) served(id string, output json.RawMessage, failed bool) {
	if tool := a.to.served[id]; tool != nil {
		endTool(tool, output, failed)
		delete(a.to.served, id)
	}
}

// value returns the input of a call as JSON.
func (b *block) value() json.RawMessage {
	if b.isText {
		return quote(string(b.input))
	}
	return input(string(b.input))
}

// calls returns the tool calls that the agent is to execute.
func (a *answer) calls() []*block {
	var out []*block
	for _, b := range a.blocks {
		if b.kind == callBlock && !b.server && !b.open {
			out = append(out, b)
		}
	}
	return out
}

// choice returns the answer of a further choice.
func (a *answer) choice(index int) *choice {
	a.effects++
	if a.others == nil {
		a.others = make(map[int]*choice)
	}
	c := a.others[index]
	if c == nil && len(a.others) < 16 {
		c = new(choice)
		a.others[index] = c
	}
	return c
}

// text appends to a further choice.
func (c *choice) write(a *answer, text string) {
	if c != nil {
		addText(&c.content, text)
		c.text = append(c.text, a.take([]byte(text))...)
	}
}

// count sets counts of a usage that arrives in pieces: the later one of a name replaces the
// earlier one.
func (a *answer) count(raw json.RawMessage) {
	var counts map[string]json.RawMessage
	if unmarshal(raw, &counts) != nil {
		return
	}
	if a.counts == nil {
		a.counts = counts
	}
	for name, n := range counts {
		if string(n) != "null" {
			a.counts[name] = n
		}
	}
}

// fail states that the provider reports an error.
func (a *answer) fail(kind, text string) {
	if a.err == nil {
		a.err = &apiError{kind: kind, text: cmp.Or(text, kind, "the provider reports an error")}
	}
}

// result returns what the answer came to, for the span of the call.
func (a *answer) result() agenttrace.ModelResult {
	return agenttrace.ModelResult{
		StopReason: a.stop, Usage: a.usage, RawUsage: a.rawUsage, ResponseID: a.id, ResponseModel: a.model,
	}
}

// apiError is an error that a provider reports.
type apiError struct{ kind, text string }

func (e *apiError) Error() string     { return e.text }
func (e *apiError) ErrorType() string { return cmp.Or(e.kind, "api_error") }

// toolError is the error that a tool returned, as the model reads it.
type toolError string

func (e toolError) Error() string     { return string(e) }
func (e toolError) ErrorType() string { return "tool_error" }

func endTool(tool *agenttrace.ToolCall, output json.RawMessage, failed bool) {
	var text string
	isText := unmarshal(output, &text) == nil && len(output) > 0 && output[0] == '"'
	switch {
	case failed && isText:
		tool.Fail(toolError(text))
	case failed:
		tool.Fail(toolError(output))
	case isText:
		tool.EndText(text)
	default:
		tool.EndRaw(output)
	}
}

// content identifies a message by its text and its tool calls, so that it is recognized
// when it comes back in the history of a request. Whitespace is left out, because clients
// trim; reasoning and inputs are left out, because they may be dropped.
type content struct {
	texts hash.Hash
	// buf is the text that is hashed next, without its whitespace.
	buf []byte
	ids []byte
	// empty reports a message without text and calls; its zero value means so.
	full bool
}

// visible has 1 for the characters of ASCII that are not whitespace.
var visible = func() (table [utf8.RuneSelf]byte) {
	for c := range table {
		if !unicode.IsSpace(rune(c)) {
			table[c] = 1
		}
	}
	return table
}()

// addText adds a text, or the next piece of one.
func addText[T string | []byte](c *content, text T) {
	if c.buf == nil {
		c.buf = make([]byte, 0, 512)
	}
	for len(text) > 0 {
		if cap(c.buf)-len(c.buf) < utf8.UTFMax {
			c.flush()
		}
		if text[0] >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(string(text[:min(len(text), utf8.UTFMax)]))
			if !unicode.IsSpace(r) {
				c.buf, c.full = append(c.buf, text[:size]...), true // also of what is no UTF-8
			}
			text = text[size:]
			continue
		}
		// Each character is written, and whitespace written over by the next one.
		n, room := len(c.buf), c.buf[:cap(c.buf)]
		i := 0
		for ; i < len(text) && n < len(room) && text[i] < utf8.RuneSelf; i++ {
			room[n] = text[i]
			n += int(visible[text[i]])
		}
		c.full = c.full || n > len(c.buf)
		c.buf, text = room[:n], text[i:]
	}
}

// flush hashes what is in buf.
func (c *content) flush() {
	if c.texts == nil {
		c.texts = sha256.New()
	}
	c.texts.Write(c.buf)
	c.buf = c.buf[:0]
}

// reset begins another message.
func (c *content) reset() {
	if c.texts != nil {
		c.texts.Reset()
	}
	c.buf, c.ids, c.full = c.buf[:0], c.ids[:0], false
}

// call adds a tool call by its id or, where the API has none, its name.
func (c *content) call(id, name string) {
	c.full = true
	c.ids = append(c.ids, 'c')
	c.ids = append(c.ids, cmp.Or(id, "="+name)...)
	c.ids = append(c.ids, 0)
}

// add adds an item of a message.
func (c *content) add(i *item) {
	switch i.kind {
	case textItem:
		addText(c, i.text)
	case callItem:
		c.call(i.id, i.name)
	case resultItem:
		c.call(">"+i.id, i.name)
	case fileItem:
		c.call("file "+i.file.name+i.file.url, "")
	}
}

// digest is a hash of a message, or of what messages are told apart by.
type digest [sha256.Size]byte

// digestOf returns the digest of texts that follow each other.
func digestOf(texts ...string) (sum digest) {
	h := sha256.New()
	for _, text := range texts {
		h.Write(unsafe.Slice(unsafe.StringData(text), len(text))) // which only reads it
	}
	h.Sum(sum[:0])
	return sum
}

// sum returns the digest of the texts.
func (c *content) sum() (sum digest) {
	c.flush()
	c.texts.Sum(sum[:0])
	return sum
}

// after returns the digest of a conversation with one more message.
func (c *content) after(before digest, from role) digest { return c.afterTexts(before, from, c.sum()) }

// afterTexts is after for a message whose texts have the digest.
func (c *content) afterTexts(before digest, from role, texts digest) (sum digest) {
	h := sha256.New()
	h.Write(before[:])
	h.Write([]byte{byte(from)})
	h.Write(texts[:])
	h.Write(c.ids)
	h.Sum(sum[:0])
	return sum
}
