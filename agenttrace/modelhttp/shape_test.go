package modelhttp

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
)

// read decodes a stream in pieces of the size, or by events if it is 0, comparing events with those before or not. It
// returns what the answer came to, how many events were decoded, and how many pieces were kept until there are many.
func read(a *api, frame, compare bool, data []byte, size int) (came string, decoded, kept int) {
	ans := &answer{budget: 1 << 20}
	d := a.answer(ans)
	b := &tap{waits: true}
	h := &b.shape
	h.a, h.max = ans, 1<<16
	h.settler, _ = d.(settler)
	var last []byte
	b.emit = func(name string, data []byte) {
		h.decoding()
		decoded++
		clear(last) // what is kept of an event is a copy
		last = bytes.Clone(data)
		d.event(name, last)
	}
	if compare {
		ans.shape = h
	}
	b.split = &sse{max: 1 << 16, shape: ans.shape}
	if frame {
		b.split, b.framed = &frames{max: 1 << 16, shape: ans.shape}, true
	}
	for len(data) > 0 {
		n := min(size, len(data))
		if size == 0 {
			event := eventEnd.FindIndex(data)
			if n = len(data); event != nil {
				n = event[1]
			}
		}
		if b.kept(data[:n]) {
			kept++
		} else {
			b.feed(data[:n])
		}
		data = data[n:]
		if len(h.text) > 100 {
			h.flush()
		}
	}
	b.feed(nil)
	b.split.end(b.emit)
	h.end()
	return outcome(ans), decoded, kept
}

var eventEnd = regexp.MustCompile(`\r?\n\r?\n`)

var apis = map[string]*api{
	"anthropic": &anthropicAPI, "chat": &chatAPI, "responses": &responsesAPI, "gemini": &geminiAPI,
	"bedrock converse": &converseAPI,
}

// grown are events by which an answer grows, with %s for the text and %d for what else differs.
var grown = map[string]string{
	"anthropic": "event: content_block_delta\n" +
		`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}` + "\n\n",
	"chat": `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,` +
		`"delta":{"content":%s},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"%[2]d"}` + "\r\n\r\n",
	"responses": "event: response.output_text.delta\n" +
		`data: {"type":"response.output_text.delta","sequence_number":%[2]d,"item_id":"msg","output_index":0,` +
		`"content_index":0,"delta":%[1]s,"logprobs":[],"obfuscation":"x\n%[2]d"}` + "\n\n",
	"gemini": `data: {"candidates":[{"content":{"parts":[{"text":%s}],"role":"model"},"index":0}],"usageMetadata":` +
		`{"promptTokenCount":7,"candidatesTokenCount":%[2]d,"totalTokenCount":1%[2]d},"modelVersion":"g"}` + "\r\n\r\n",
}

var texts = []string{
	`"It is"`, `" fine"`, `"ä 中 😀"`, `"\n\"quoted\" \\ \u00e4\ud83d\ude00"`, `""`, `"event: x"`, `"data: \r\r"`,
	`null`, `7`,
	`"not` + "\n" + `one line"`, `"\ud83d"`, "\"\xff\"", `"a","b":"c"`, ` "a space"`,
	`"` + strings.Repeat("long ", 600) + `"`,
}

// stream returns as many events, of which each text is another one.
func stream(event string, from, n int) (out []byte) {
	for i := from; i < from+n; i++ {
		one := fmt.Sprintf(event, texts[i%len(texts)], i*i)
		if at := strings.Index(one, "%!(EXTRA"); at >= 0 {
			one = one[:at]
		}
		out = append(out, one...)
	}
	return out
}

// FuzzShape checks that a stream is the same answer when events are compared with those before.
func FuzzShape(f *testing.F) {
	for name, event := range grown {
		for from := range texts {
			f.Add(name, stream(event, from, 20), 7+100*from)
			f.Add(name, stream(event, from, 20), 0)
		}
	}
	for name, events := range deltas {
		for _, one := range slices.Concat(events, odd[name]) {
			var all []byte
			for _, event := range []string{events[0], events[0], one, one, one, events[0], events[0]} {
				all = append(all, "data: "+event+"\n\n"...)
			}
			f.Add(name, all, 0)
		}
	}
	for name := range apis {
		for _, stream := range []bool{true, false} {
			var all []byte
			for i := range modelserver.Weather.Turns[0].Steps {
				_, chunks := modelserver.Named(name).Chunks(&modelserver.Weather.Turns[0].Steps[i], "resp_1", stream)
				all = append(all, bytes.Join(chunks, bytes.Repeat(chunks[len(chunks)/2], 3))...)
			}
			for _, size := range []int{4096, 0, 7, 90} {
				f.Add(name, all, size)
			}
		}
	}
	f.Fuzz(func(t *testing.T, name string, data []byte, size int) {
		a := apis[name]
		if a == nil {
			return
		}
		for _, frame := range []bool{false, true} {
			want, _, _ := read(a, frame, false, data, max(1, len(data)))
			got, _, _ := read(a, frame, true, data, size&0xffff)
			if got != want {
				t.Errorf("%s, frames %v: %q\nwith a shape %s\nwithout      %s", name, frame, data, got, want)
			}
		}
	})
}

// TestEventsOfOneShapeAreNotDecodedOneByOne has events as providers send them, with numbers and padding that differ,
// and counts those that are decoded.
func TestEventsOfOneShapeAreNotDecodedOneByOne(t *testing.T) {
	for name, event := range grown {
		for _, size := range []int{0, 50, 1 << 20} {
			var data []byte
			for i := range 200 {
				one := fmt.Sprintf(event, strconv.Quote(fmt.Sprint("word\n ", i)), 10000+i*i)
				one, _, _ = strings.Cut(one, "%!(EXTRA")
				data = append(data, one...)
			}
			want, all, _ := read(apis[name], false, false, data, size)
			got, decoded, kept := read(apis[name], false, true, data, size)
			if got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
			if all != 200 || decoded > 5 {
				t.Errorf("%s, in pieces of %d bytes: %d of %d events are decoded", name, size, decoded, all)
			}
			if size == 0 && kept < 190 {
				t.Errorf("%s: %d of %d events that come alone are kept until there are many", name, kept, all)
			}
		}
	}
}

// TestMessagesOfOneShapeAreKept has messages of AWS in small pieces, as its clients read them.
func TestMessagesOfOneShapeAreKept(t *testing.T) {
	for name, a := range map[string]*api{"bedrock converse": &converseAPI, "bedrock invoke": &anthropicAPI} {
		_, chunks := modelserver.Named(name).Chunks(&modelserver.Step{Text: strings.Repeat("word ", 100)}, "resp_1", true)
		at := 0 // the longest one is of text
		for i := range chunks {
			if len(chunks[i]) > len(chunks[at]) {
				at = i
			}
		}
		all := slices.Concat(bytes.Join(chunks[:at], nil), bytes.Repeat(chunks[at], 200), bytes.Join(chunks[at+1:], nil))
		for _, size := range []int{13, 100} {
			want, _, _ := read(a, true, false, all, len(all))
			got, decoded, kept := read(a, true, true, all, size)
			if got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
			if pieces := len(all) / size; decoded > 20 || kept < pieces*8/10 {
				t.Errorf("%s: %d messages are decoded, %d of %d pieces kept", name, decoded, kept, pieces)
			}
		}
	}
}
