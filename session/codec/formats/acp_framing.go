package formats

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// acpSide is who sent a message.
type acpSide int

const (
	acpUnknown acpSide = iota
	acpClient
	acpAgent
)

func (s acpSide) String() string { return [...]string{"unknown", "client", "agent"}[s] }

// acpMessage is a JSON-RPC message, whatever its framing.
type acpMessage struct {
	line   int
	at     int64 // Unix milliseconds
	timed  bool
	from   acpSide
	id     string // as JSON, empty for a notification
	method string // of a request or notification, else empty
	params rows.Object
	odd    json.RawMessage // params that are not an object
	result json.RawMessage
	err    json.RawMessage
	hop    bool // proxies sent it to each other
}

func (m *acpMessage) response() bool { return m.method == "" }

// acpReadMessages returns the messages in r.
func acpReadMessages(r io.Reader, report func(codec.Problem)) ([]acpMessage, error) {
	p := &acpParser{report: report}
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
			err = p.array(bytes.ToValidUTF8(data, []byte("\uFFFD")))
		}
	default:
		err = p.stream(in)
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read trace: %w", err)
	case len(p.messages) == 0:
		return nil, errors.New("read trace: no message of JSON-RPC in it")
	}
	return p.clientsView(), nil
}

// begin passes over white space and returns the byte that follows.
func (p *acpParser) begin(in *bufio.Reader) (byte, error) {
	for {
		c, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if strings.IndexByte(" \t\r\n\v\f", c) < 0 {
			return c, in.UnreadByte()
		}
		if c == '\n' {
			p.line++
		}
	}
}

// stream reads lines as they come, for a trace may be large.
func (p *acpParser) stream(in *bufio.Reader) error {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		p.line++
		if line = bytes.TrimSpace(bytes.ToValidUTF8(line, []byte("\uFFFD"))); len(line) > 0 {
			p.record(line)
		}
		if err != nil {
			return nil
		}
	}
}

type acpParser struct {
	report   func(codec.Problem)
	line     int
	inArray  bool
	messages []acpMessage
	last     int64
}

func (p *acpParser) problem(format string, args ...any) {
	problem := codec.Problem{Line: p.line, Reason: fmt.Sprintf(format, args...)}
	if p.inArray {
		problem.Line, problem.Record = 0, fmt.Sprintf("element %d", p.line)
	}
	p.report(problem)
}

// array reads an array of messages, as the log of Zed is copied: as a whole.
func (p *acpParser) array(data []byte) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return fmt.Errorf("the array is damaged: %w", err)
	}
	p.inArray, p.line = true, 0
	for _, element := range elements {
		p.line++
		p.record(element)
	}
	return nil
}

// acpSides are the words of the framings for who sent a message.
var acpSides = map[string]acpSide{
	"fromClient": acpClient, "outgoing": acpClient, "client": acpClient,
	"fromAgent": acpAgent, "incoming": acpAgent, "agent": acpAgent,
}

// conducted reads a record of a conductor.
func (p *acpParser) conducted(m *acpMessage, o rows.Object) (rpc rows.Object) {
	m.from = acpSides[strings.ToLower(o.Text("from"))]
	to := acpSides[strings.ToLower(o.Text("to"))]
	m.hop = m.from != acpClient && to != acpClient
	if m.from == acpUnknown && to != acpUnknown {
		m.from = acpClient + acpAgent - to
	}
	p.time(m, o.Get("ts"), 1000)
	if o.Text("type") != "response" {
		return o
	}
	key := "result"
	if o.True("is_error") {
		key = "error"
	}
	return rows.Of("id", o.Get("id"), key, rows.OrNull(o.Get("payload")))
}

// acpZed reads an element of Zed's log.
func acpZed(o rows.Object) (rpc rows.Object) {
	if o.Text("_type") != "response" {
		return o
	}
	// An error has the place of the result; only its shape distinguishes it.
	key, payload := "result", rows.OrNull(o.Get("params"))
	if e := rows.Read(string(payload)); e.Has("code") && e.Has("message") {
		key = "error"
	}
	return rows.Of("id", o.Get("id"), key, payload)
}

// record reads one line or element in whichever framing it is.
func (p *acpParser) record(data []byte) {
	o, err := rows.Parse(data)
	if err != nil {
		p.problem("not a JSON object: left out")
		return
	}
	m := acpMessage{line: p.line, at: p.last}
	rpc := o
	switch {
	case o.Has("json") && o.Has("direction"): // an inspector, which has the message as text
		m.from = acpSides[o.Text("direction")]
		p.time(&m, o.Get("ts"), 1)
		if rpc, err = rows.Parse([]byte(o.Text("json"))); err != nil {
			p.problem("json is not a JSON object: left out")
			return
		}
	case o.Has("_direction"):
		m.from = acpSides[o.Text("_direction")]
		rpc = acpZed(o)
	case o.Has("from") && o.Has("type"):
		rpc = p.conducted(&m, o)
	case o.Object("message") != nil && o.Has("direction"):
		p.time(&m, o.Get("timestamp"), 1)
		rpc = o.Object("message")
	}
	m.set(rpc.Get("id"), rpc.Text("method"), rpc.Get("params"))
	if m.method == "" {
		m.result, m.err = rpc.Get("result"), rpc.Get("error")
		if m.result == nil && m.err == nil {
			p.problem("not a message of JSON-RPC: left out")
			return
		}
	}
	m.unwrap()
	if m.from == acpUnknown {
		m.from = acpSenderOf(m.method)
	}
	p.last = m.at
	p.messages = append(p.messages, m)
}

func (m *acpMessage) set(id json.RawMessage, method string, params json.RawMessage) {
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
func (m *acpMessage) unwrap() {
	switch m.method {
	case "proxy/initialize":
		m.method = acpMethodInitialize
	case "proxy/successor":
		if inner := m.params; inner.Text("method") != "" {
			m.set(json.RawMessage(m.id), inner.Text("method"), inner.Get("params"))
		}
	}
}

// acpSenderOf is the side that sends a method, if the method shows it.
func acpSenderOf(method string) acpSide {
	switch {
	case method == "" || strings.HasPrefix(method, "$/"):
		return acpUnknown
	case method == acpMethodUpdate, method == acpMethodPermission, method == acpMethodLog,
		strings.HasPrefix(method, "fs/"), strings.HasPrefix(method, "terminal/"),
		strings.HasPrefix(method, "elicitation/"), strings.HasPrefix(method, "_"):
		return acpAgent
	}
	return acpClient
}

// time reads an ISO 8601 time, or a number of milliseconds after it is
// multiplied.
func (p *acpParser) time(m *acpMessage, raw json.RawMessage, times float64) {
	if s, ok := rows.Text(raw); ok {
		if t, err := time.Parse(time.RFC3339Nano, s); err == nil && t.UnixMilli() >= 0 &&
			t.UnixMilli() <= rows.MaxTime {
			m.at, m.timed = t.UnixMilli(), true
			return
		}
	} else {
		var f float64
		if json.Unmarshal(raw, &f) == nil && f >= 0 && f*times <= rows.MaxTime {
			m.at, m.timed = int64(f*times+0.5), true
			return
		}
	}
	p.problem("time %s cannot be read: taken as that of the message before", raw)
}

// clientsView leaves out the hops between proxies and the agent, which repeat
// what the client sends and gets, unless there is nothing else.
func (p *acpParser) clientsView() []acpMessage {
	if !slices.ContainsFunc(p.messages, func(m acpMessage) bool { return !m.hop }) {
		return p.messages
	}
	all := len(p.messages)
	seen := slices.DeleteFunc(p.messages, func(m acpMessage) bool { return m.hop })
	if len(seen) == all {
		return seen
	}
	const reason = "%d messages between proxies and the agent are left out: the client's messages have the same content"
	p.report(codec.Problem{Reason: fmt.Sprintf(reason, all-len(seen))})
	return seen
}
