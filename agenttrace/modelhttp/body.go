package modelhttp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// tap parses what is read of the body of an answer. One that is closed before its end is aborted.
type tap struct {
	x *exchange

	mu       sync.Mutex // guards what follows
	finished bool
	// dropped reports that the body is too large, or encoded otherwise.
	dropped bool
	// length is that of the whole body, if it is positive.
	length, read int64
	answer       *answer
	dec          modelapi.Decoder
	split        modelapi.Stream // nil if the body is one document
	inflater     *inflater       // nil if the body is not compressed
	kind         string          // the content type
	known        bool            // whether it is a stream
	// buf is a document until its end, cut the error of an answer that lacks its own.
	buf []byte
	cut error
}

func newTap(x *exchange, resp *http.Response) io.ReadCloser {
	a := x.flight.newAnswer()
	b := &tap{x: x, answer: a, cut: errTruncated, dec: x.target.api.Decode(&a.Answer), length: resp.ContentLength,
		kind: resp.Header.Get("Content-Type")}
	if open, known := x.t.o.decoder(resp.Header); !known {
		b.dropped = true
	} else if open != nil {
		b.inflater = newInflater(open, b.feed, b.recovered)
	}
	return &modelapi.Body{ReadCloser: resp.Body, Took: b.took, Closed: b.closed}
}

// took parses what was read before the caller has it: an agent may act on the last bytes without reading on, and its
// next request must find the end of the answer.
func (b *tap) took(p []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		return
	}
	defer b.recovered()
	b.read += int64(len(p))
	if b.inflater != nil {
		b.inflater.feed(p)
	} else {
		b.feed(p)
	}
	switch {
	case b.finished: // the parser panicked
	case errors.Is(err, io.EOF):
		b.end(true)
	case err != nil:
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errTruncated
		}
		b.parse()
		b.finish(err)
	case b.answer.Complete, b.length > 0 && b.read >= b.length:
		b.end(true)
	}
}

func (b *tap) closed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		return
	}
	defer b.recovered()
	b.end(false)
}

// recovered ends the call when the parser panics. The caller holds mu.
func (b *tap) recovered() {
	if p := recover(); p != nil {
		b.finished, b.buf = true, nil
		otel.Handle(fmt.Errorf("record a model's answer: panic: %v", p))
		b.x.flight.unparsed("the answer could not be parsed")
	}
}

// feed parses a stream, or appends to the document.
func (b *tap) feed(p []byte) {
	switch {
	case b.split != nil:
		b.split.Feed(p, b.dec.Event)
	case b.dropped:
	case len(b.buf)+len(p) > b.x.t.o.MaxBodyBytes:
		b.buf, b.dropped = nil, true
	default:
		b.buf = append(b.buf, p...)
		if !b.known {
			b.look(false)
		}
	}
}

// look finds out whether the body, or all of it, is a stream, and parses it then.
func (b *tap) look(all bool) {
	if b.split, b.known = modelapi.StreamIn(b.buf, b.kind, all, b.x.t.o.MaxBodyBytes); b.split != nil {
		b.split.Feed(b.buf, b.dec.Event)
		b.buf = nil
	}
}

// parse parses what was kept. It reports whether the body is whole as far as its framing shows.
func (b *tap) parse() (whole bool) {
	if b.inflater != nil {
		b.inflater.end()
	}
	if whole = b.split == nil && len(b.buf) > 0 && modelapi.Valid(b.buf); !whole && b.split == nil && !b.dropped {
		b.look(true)
	}
	if b.split != nil {
		b.split.End(b.dec.Event)
		return false
	}
	data := b.buf
	if b.buf = nil; whole {
		b.dec.Body(data)
	} else if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' && data[0] != '[' {
		b.cut = fmt.Errorf("the answer is not JSON: %q", headOf(data))
	}
	return whole
}

// headOf returns the beginning of a body that is not what it should be.
func headOf(body []byte) string {
	return strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), 300)]), ""))
}

// Decoder returns what is compressed in r.
type Decoder func(r io.Reader) (io.Reader, error)

// decoder returns what decompresses a body, nil for one that is not compressed, and whether its encoding is known.
func (o *Options) decoder(h http.Header) (open Decoder, known bool) {
	switch name := strings.ToLower(h.Get("Content-Encoding")); name {
	case "", "identity":
		return nil, true
	case "gzip", "x-gzip":
		return func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }, true
	case "deflate":
		return func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }, true
	default:
		open, known = o.Decoders[name]
		return open, known
	}
}

// inflate decompresses what there is of a document.
func inflate(open Decoder, data []byte, limit int) (out []byte, whole bool) {
	z, err := open(bytes.NewReader(data))
	if err != nil {
		return nil, false
	}
	out, err = io.ReadAll(io.LimitReader(z, int64(limit)+1))
	if len(out) > limit {
		return nil, false
	}
	return out, err == nil
}

// inflater decompresses a stream as it comes. Decoders read, so they do it in a goroutine.
type inflater struct {
	*io.PipeWriter
	done chan struct{}
}

func newInflater(open Decoder, each func([]byte), recovered func()) *inflater {
	r, w := io.Pipe()
	z := &inflater{w, make(chan struct{})}
	go func() {
		defer close(z.done)
		defer r.Close() // what comes after the end, or after an error, is left
		defer recovered()
		d, err := open(r)
		for buf, n := make([]byte, 4<<10), 0; err == nil; {
			n, err = d.Read(buf)
			each(buf[:n])
		}
	}()
	return z
}

// feed returns when each was called with all that can be decompressed: an empty piece is read after the one before it.
func (z *inflater) feed(p []byte) {
	_, _ = z.Write(p)
	_, _ = z.Write(nil)
}

// end is the end of what is fed.
func (z *inflater) end() {
	_ = z.Close()
	<-z.done
}

// end ends the answer at the end of the body, or where the caller closed it.
func (b *tap) end(atEnd bool) {
	whole := b.parse()
	switch {
	case b.finished: // the parser panicked
	case b.dropped:
		b.finished = true
		b.x.flight.unparsed("the answer is too large or encoded")
	case b.answer.Err != nil:
		b.finish(b.answer.Err)
	case b.answer.Ended:
		b.finish(nil)
	case !atEnd:
		b.finish(context.Canceled)
	case whole && b.split == nil:
		b.finish(nil) // a document without an answer, such as one that is queued
	default:
		b.finish(b.cut)
	}
}

func (b *tap) finish(err error) {
	b.finished = true
	// With calls of tools, the agent may go on instead.
	again := err != nil && !errors.Is(err, context.Canceled) && !b.x.attempt.isLast && len(b.answer.calls()) == 0
	b.x.ended(b.answer, err, again, 0)
}

// httpError returns the error of a response that is no answer. Its type is the provider's, or else the status.
func httpError(status int, kind, text string) error {
	s := strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
	if text != "" {
		s += ": " + text
	}
	return &modelapi.Error{Kind: cmp.Or(kind, strconv.Itoa(status)), Text: s}
}

const maxErrorBody = 64 << 10

// refused takes a response that is not an answer.
func (x *exchange) refused(resp *http.Response) {
	again := (modelapi.Retryable(resp) || resp.StatusCode < 400) && !x.attempt.isLast // a redirect is sent again, too
	if again {
		after, _ := modelapi.RetryAfter(resp.Header, time.Now())
		x.ended(nil, httpError(resp.StatusCode, "", ""), true, after)
	}
	describe := func(body []byte) {
		if open, _ := x.t.o.decoder(resp.Header); open != nil {
			body, _ = inflate(open, body, maxErrorBody)
		}
		kind, text, ok := modelapi.ErrorOf(body)
		if !ok {
			text = headOf(body)
		}
		err := httpError(resp.StatusCode, kind, text)
		if again {
			x.flight.describe(err)
		} else {
			x.ended(nil, err, false, 0)
		}
	}
	if resp.Body == nil || resp.Body == http.NoBody {
		describe(nil)
		return
	}
	var mu sync.Mutex
	var head []byte
	end := sync.OnceFunc(func() {
		defer recovered()
		mu.Lock()
		defer mu.Unlock()
		describe(head)
	})
	resp.Body = &modelapi.Body{ReadCloser: resp.Body, Closed: end, Took: func(p []byte, err error) {
		mu.Lock()
		head = append(head, p[:min(len(p), maxErrorBody-len(head))]...)
		mu.Unlock()
		if err != nil {
			end()
		}
	}}
}

// target is what the URL of a request states.
type target struct {
	api *modelapi.API // nil if the body of the request shows it
	// provider is a value of gen_ai.provider.name; model is empty if the URL has none.
	provider, model string
}

// route is a path of an API. Its first group is the model, if it has one.
type route struct {
	path     func() *regexp.Regexp
	api      *modelapi.API
	provider string
	byHost   bool // the provider is that of the host, if that is known
}

// routes are the paths of the APIs. The first that matches counts. They are escaped: the id of a Bedrock model may be
// an ARN with slashes.
var routes = []route{
	{lazy.Regexp(`/model/(.+)/converse(-stream)?$`), modelapi.Converse, "aws.bedrock", false},
	{lazy.Regexp(`/model/(.+)/invoke(-with-response-stream)?$`), nil, "aws.bedrock", false},
	{lazy.Regexp(`/(?:publishers|endpoints)/(?:.*/)?([^/:]+):(generate|streamGenerate)Content$`), modelapi.Gemini,
		"gcp.vertex_ai", false},
	{lazy.Regexp(`/([^/:]+):(generate|streamGenerate)Content$`), modelapi.Gemini, "gcp.gemini", true},
	{lazy.Regexp(`/publishers/anthropic/(?:.*/)?([^/:]+):(raw|streamRaw)Predict$`), modelapi.Anthropic,
		"gcp.vertex_ai", false},
	{lazy.Regexp(`/([^/:]+):(raw|streamRaw)Predict$`), modelapi.Chat, "gcp.vertex_ai", false},
	{lazy.Regexp(`/v1/messages()$`), modelapi.Anthropic, "anthropic", false},
	{lazy.Regexp(`(?:/deployments/(.+))?/chat/completions$`), modelapi.Chat, "openai", true},
	{lazy.Regexp(`/responses()$`), modelapi.Responses, "openai", true},
	{lazy.Regexp(`/api/chat()$`), modelapi.Chat, "ollama", false},
}

// recognize returns the API that a request is for, or nil.
func recognize(method string, u *url.URL) *target {
	if method != http.MethodPost || u == nil {
		return nil
	}
	host, path := strings.ToLower(u.Hostname()), strings.TrimSuffix(u.EscapedPath(), "/")
	for _, r := range routes {
		if m := r.path().FindStringSubmatch(path); m != nil {
			model, err := url.PathUnescape(m[1])
			if err != nil {
				model = m[1]
			}
			provider := r.provider
			if r.byHost {
				provider = cmp.Or(modelapi.ProviderOf(host), provider)
			}
			return &target{r.api, provider, model}
		}
	}
	return nil
}

// others are the APIs of models without conversations, and beside them, by the ends of their paths.
var others = []string{"/embeddings", "/count_tokens", ":countTokens", "mbedContent", "mbedContents",
	"/moderations", "/files", "/uploads", "/token", "/batches", "/input_tokens", "/v1/traces", "/v1/logs", "/v1/metrics"}

// unrecognized counts a request that has a document to a path that is none of those known, and reports each path once.
func (t *Transport) unrecognized(req *http.Request) {
	path := req.URL.EscapedPath()
	if req.Method != http.MethodPost || !strings.Contains(req.Header.Get("Content-Type"), "json") ||
		slices.ContainsFunc(others, func(end string) bool { return strings.HasSuffix(path, end) }) {
		return
	}
	const most = 20 // paths may have ids
	if n := t.passed.Add(1); n > 1000*most {
		return
	}
	if _, known := t.paths.LoadOrStore(req.URL.Host+path, true); !known && t.reported.Add(1) <= most {
		otel.Handle(fmt.Errorf("record model calls: no known API has the path %s%s: its requests are not recorded",
			req.URL.Host, path))
	}
}
