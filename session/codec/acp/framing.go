package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// side is who sent a message.
type side int

const (
	unknown side = iota
	client
	agent
)

func (s side) String() string { return [...]string{"unknown", "client", "agent"}[s] }

// message is a JSON-RPC message, whatever its framing.
type message struct {
	line   int
	at     int64 // Unix milliseconds
	timed  bool
	from   side
	id     string // as JSON, empty for a notification
	method string // of a request or notification, else empty
	params rows.Object
	odd    json.RawMessage // params that are no object
	result json.RawMessage
	err    json.RawMessage
}

func (m *message) response() bool { return m.method == "" }

// maxTime bounds times: the end of the year 9999.
const maxTime = 253402300799999

// trace is what was read.
type trace struct {
	messages []message
}

// readMessages returns the messages in r.
func readMessages(r io.Reader, report func(codec.Problem)) (trace, error) {
	p := &parser{report: report}
	in := bufio.NewReaderSize(r, 64<<10)
	if mark, _ := in.Peek(3); string(mark) == "\uFEFF" {
		_, _ = in.Discard(3)
	}
	first, err := p.begin(in)
	switch {
	case err != nil:
	case first == '[':
		var data []byte
		if data, err = io.ReadAll(in); err == nil {
			p.array(bytes.ToValidUTF8(data, []byte("\uFFFD")))
		}
	default:
		err = p.stream(in)
	}
	switch {
	case errors.Is(err, io.EOF):
		return trace{}, nil
	case err != nil:
		return trace{}, fmt.Errorf("read trace: %w", err)
	case len(p.messages) == 0:
		return trace{}, errors.New("read trace: no message of JSON-RPC in it")
	}
	return trace{p.clientsView()}, nil
}

// begin passes over white space and returns the byte that follows.
func (p *parser) begin(in *bufio.Reader) (byte, error) {
	for {
		c, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case '\n':
			p.line++
		case ' ', '\t', '\r', '\v', '\f':
		default:
			return c, in.UnreadByte()
		}
	}
}

// stream reads lines as they come, for a trace may be large.
func (p *parser) stream(in *bufio.Reader) error {
	var long []byte // a line longer than the buffer
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		if len(line) > 0 {
			p.lines(bytes.ToValidUTF8(line, []byte("\uFFFD")))
		}
		if err != nil {
			return nil
		}
		if long = long[:0]; cap(long) > 16<<20 {
			long = nil // what was large once need not stay
		}
	}
}

type parser struct {
	report   func(codec.Problem)
	line     int
	inArray  bool
	messages []message
	hops     []bool // by message: was it a hop between proxies?
	last     int64
}

func (p *parser) problem(format string, args ...any) {
	problem := codec.Problem{Line: p.line, Reason: fmt.Sprintf(format, args...)}
	if p.inArray {
		problem.Line, problem.Record = 0, fmt.Sprintf("element %d", p.line)
	}
	p.report(problem)
}

func (p *parser) lines(data []byte) {
	for line := range bytes.Lines(data) {
		p.line++
		if line = bytes.TrimSpace(line); len(line) > 0 {
			p.record(line)
		}
	}
}

// array reads an array of messages, and as lines what may follow it.
func (p *parser) array(data []byte) {
	before := p.line
	p.inArray, p.line = true, 0
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		p.problem("%v", err)
		return
	}
	for d.More() {
		p.line++
		var element json.RawMessage
		if err := d.Decode(&element); err != nil {
			p.problem("%v: the rest is left out", err)
			return
		}
		p.record(element)
	}
	if _, err := d.Token(); err != nil {
		p.problem("the array has no end")
		return
	}
	end := d.InputOffset()
	p.inArray, p.line = false, before+bytes.Count(data[:end], []byte("\n"))
	p.lines(data[end:])
}

// inspected reads a record of an inspector, which has the message as text.
func (p *parser) inspected(m *message, o rows.Object) bool {
	m.from = map[string]side{"fromClient": client, "fromAgent": agent}[o.Text("direction")]
	p.time(m, o.Get("ts"), 1)
	inner, err := rows.Parse([]byte(o.Text("json")))
	if err != nil {
		p.problem("json is not a JSON object: left out")
		return false
	}
	return p.rpc(m, inner)
}

// zed reads an element of Zed's log.
func zed(m *message, o rows.Object) {
	m.from = map[string]side{"outgoing": client, "incoming": agent}[o.Text("_direction")]
	payload := o.Get("params")
	if o.Text("_type") != "response" {
		m.set(o.Get("id"), o.Text("method"), payload)
		return
	}
	m.set(o.Get("id"), "", nil)
	// An error stands where the result would; only its shape tells.
	if e, err := rows.Parse(payload); err == nil && e.Has("code") && e.Has("message") {
		m.err = payload
	} else {
		m.result = orNull(payload)
	}
}

// conducted reads a record of a conductor. hop says that proxies sent the message to
// each other.
func (p *parser) conducted(m *message, o rows.Object) (hop, ok bool) {
	m.from = map[string]side{"client": client, "agent": agent}[strings.ToLower(o.Text("from"))]
	to := map[string]side{"client": client, "agent": agent}[strings.ToLower(o.Text("to"))]
	hop = m.from != client && to != client
	if m.from == unknown && to != unknown {
		m.from = client + agent - to
	}
	p.time(m, o.Get("ts"), 1000)
	switch o.Text("type") {
	case "request", "notification":
		m.set(o.Get("id"), o.Text("method"), o.Get("params"))
	case "response":
		m.set(o.Get("id"), "", nil)
		if string(o.Get("is_error")) == "true" {
			m.err = orNull(o.Get("payload"))
		} else {
			m.result = orNull(o.Get("payload"))
		}
	default:
		p.problem("record of type %q: left out", o.Text("type"))
		return hop, false
	}
	return hop, true
}

// record reads one line or element in whichever framing it is.
func (p *parser) record(data []byte) {
	o, err := rows.Parse(data)
	if err != nil {
		p.problem("not a JSON object: left out")
		return
	}
	m := message{line: p.line, at: p.last}
	hop, ok := false, true
	switch {
	case o.Has("json") && o.Has("direction"):
		ok = p.inspected(&m, o)
	case o.Has("_direction"):
		zed(&m, o)
	case o.Has("from") && o.Has("type"):
		hop, ok = p.conducted(&m, o)
	case o.Object("message") != nil && o.Has("direction"):
		p.time(&m, o.Get("timestamp"), 1)
		ok = p.rpc(&m, o.Object("message"))
	default:
		ok = p.rpc(&m, o)
	}
	if !ok {
		return
	}
	if m.method == "" && m.result == nil && m.err == nil {
		p.problem("neither a request nor a response: left out")
		return
	}
	m.unwrap()
	if m.from == unknown {
		m.from = senderOf(m.method)
	}
	p.last = m.at
	p.messages, p.hops = append(p.messages, m), append(p.hops, hop)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// rpc takes a JSON-RPC message as it is.
func (p *parser) rpc(m *message, o rows.Object) bool {
	m.set(o.Get("id"), o.Text("method"), o.Get("params"))
	if m.method == "" {
		m.result, m.err = o.Get("result"), o.Get("error")
		if m.result == nil && m.err == nil {
			p.problem("not a message of JSON-RPC: left out")
			return false
		}
	}
	return true
}

func (m *message) set(id json.RawMessage, method string, params json.RawMessage) {
	if id != nil && string(id) != "null" {
		m.id = string(id)
	}
	m.method = method
	if params == nil || string(params) == "null" {
		return
	}
	var err error
	if m.params, err = rows.Parse(params); err != nil {
		m.odd = params
	}
}

// unwrap takes a message out of what a proxy put around it.
func (m *message) unwrap() {
	switch m.method {
	case "proxy/initialize":
		m.method = methodInitialize
	case "proxy/successor":
		inner := m.params
		if inner.Text("method") == "" {
			return
		}
		m.set(json.RawMessage(m.id), inner.Text("method"), inner.Get("params"))
		if meta := inner.Object("meta"); meta != nil && m.odd == nil && !m.params.Has("_meta") {
			m.params.Set("_meta", meta)
		}
	}
}

// senderOf tells by the method who sends it.
func senderOf(method string) side {
	switch {
	case method == "" || strings.HasPrefix(method, "$/"):
		return unknown
	case method == methodUpdate, method == methodPermission, method == methodLog,
		strings.HasPrefix(method, "fs/"), strings.HasPrefix(method, "terminal/"),
		strings.HasPrefix(method, "elicitation/"), strings.HasPrefix(method, "_"):
		return agent
	}
	return client
}

// time reads an ISO 8601 time, or a number of milliseconds after it is
// multiplied.
func (p *parser) time(m *message, raw json.RawMessage, times float64) {
	if s, ok := rows.Text(raw); ok {
		if t, err := time.Parse(time.RFC3339Nano, s); err == nil && t.UnixMilli() >= 0 && t.UnixMilli() <= maxTime {
			m.at, m.timed = t.UnixMilli(), true
			return
		}
	} else {
		var f float64
		if json.Unmarshal(raw, &f) == nil && f >= 0 && f*times <= maxTime {
			m.at, m.timed = int64(f*times+0.5), true
			return
		}
	}
	p.problem("time %s cannot be read: taken as that of the message before", raw)
}

// clientsView leaves out the hops between proxies and the agent, which repeat
// what the client sends and gets, unless there is nothing else.
func (p *parser) clientsView() []message {
	hops := 0
	for _, hop := range p.hops {
		if hop {
			hops++
		}
	}
	if hops == 0 || hops == len(p.messages) {
		return p.messages
	}
	seen := p.messages[:0]
	for i, m := range p.messages {
		if !p.hops[i] {
			seen = append(seen, m)
		}
	}
	p.report(codec.Problem{Reason: fmt.Sprintf("%d messages between proxies and the agent are left out: those that the client saw say the same", hops)})
	return seen
}
