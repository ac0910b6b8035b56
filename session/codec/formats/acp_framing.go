package formats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Who sent a message.
const acpUnknown, acpClient, acpAgent = "unknown", "client", "agent"

// acpMessage is a JSON-RPC message, whatever its framing.
type acpMessage struct {
	line        int
	at          int64 // Unix milliseconds
	timed       bool
	from        string // who sent it
	hop         bool   // proxies sent it to each other
	id          string // as JSON, empty for a notification
	method      string // of a request or notification, else empty
	params      rows.Object
	raw         json.RawMessage // the params, which need not be an object
	result, err json.RawMessage
}

// acpParser reads messages.
type acpParser struct {
	report   func(codec.Problem)
	n        int // of the line or element
	inArray  bool
	messages []*acpMessage
}

func (p *acpParser) problem(format string, args ...any) {
	problem := codec.Problem{Line: p.n, Reason: fmt.Sprintf(format, args...)}
	if p.inArray {
		problem.Line, problem.Record = 0, fmt.Sprintf("element %d", p.n)
	}
	p.report(problem)
}

// acpMessages returns the messages in text, which is one a line, or an array of them, as the log of Zed is copied. The
// hops between proxies and the agent, which repeat what the client sends and gets, are left out unless there is nothing
// else.
func acpMessages(text []byte, report func(codec.Problem)) ([]*acpMessage, error) {
	p := &acpParser{report: report}
	body := bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\uFEFF")), " \t\r\n\v\f")
	switch {
	case len(body) == 0:
		return nil, nil
	case body[0] == '[':
		p.inArray = true
		var elements []json.RawMessage
		if err := json.Unmarshal(bytes.ToValidUTF8(body, []byte("\uFFFD")), &elements); err != nil {
			return nil, fmt.Errorf("the array is damaged: %w", err)
		}
		for _, element := range elements {
			p.n++
			p.record(rows.Share(element))
		}
	default:
		for l := range rows.Lines(text, report) {
			p.n = l.N
			p.record(l.Object, l.Err)
		}
	}
	if len(p.messages) == 0 {
		return nil, errors.New("no message of JSON-RPC in it")
	}
	seen := slices.DeleteFunc(slices.Clone(p.messages), func(m *acpMessage) bool { return m.hop })
	if hops := len(p.messages) - len(seen); hops > 0 && len(seen) > 0 {
		const reason = "%d messages between proxies and the agent are left out: the client's messages have the same content"
		report(codec.Problem{Reason: fmt.Sprintf(reason, hops)})
		return seen, nil
	}
	return p.messages, nil
}

// record reads one line or element.
func (p *acpParser) record(o rows.Object, err error) {
	m := &acpMessage{line: p.n}
	if n := len(p.messages); n > 0 {
		m.at = p.messages[n-1].at
	}
	if err != nil {
		err = errors.New("not a JSON object")
	} else {
		err = p.unframe(m, o)
	}
	if err != nil {
		p.problem("%v: left out", err)
		return
	}
	p.messages = append(p.messages, m)
}

// acpSides are the words of the framings for who sent a message.
var acpSides = map[string]string{
	"fromClient": acpClient, "outgoing": acpClient, "client": acpClient, "Client": acpClient,
	"fromAgent": acpAgent, "incoming": acpAgent, "agent": acpAgent, "Agent": acpAgent,
}

// unframe takes a message out of whichever framing it is in. The error is why it cannot be read.
func (p *acpParser) unframe(m *acpMessage, o rows.Object) (err error) {
	response := func(key string, failed bool) { // of which the result or the error is under another key
		as := "result"
		if failed {
			as = "error"
		}
		o = rows.Of("id", o.Get("id"), as, rows.OrNull(o.Get(key)))
	}
	switch {
	case o.Has("json") && o.Has("direction"): // an inspector, which has the message as text
		m.from = acpSides[o.Text("direction")]
		p.time(m, o.Get("ts"), 1)
		if o, err = rows.Parse([]byte(o.Text("json"))); err != nil {
			return errors.New("json is not a JSON object")
		}
	case o.Has("_direction"): // Zed, where an error has the place of the result; only its shape distinguishes it
		m.from = acpSides[o.Text("_direction")]
		if e := o.Object("params"); o.Text("_type") == "response" {
			response("params", e.Has("code") && e.Has("message"))
		}
	case o.Has("from") && o.Has("type"): // a conductor
		from, to := acpSides[o.Text("from")], acpSides[o.Text("to")]
		m.from, m.hop = from, from != acpClient && to != acpClient
		if from == "" {
			m.from = map[string]string{acpAgent: acpClient, acpClient: acpAgent}[to]
		}
		p.time(m, o.Get("ts"), 1000)
		if o.Text("type") == "response" {
			response("payload", o.True("is_error"))
		}
	case o.Object("message") != nil && o.Has("direction"):
		p.time(m, o.Get("timestamp"), 1)
		o = o.Object("message")
	}
	m.method, m.raw, m.result, m.err = o.Text("method"), o.Get("params"), o.Get("result"), o.Get("error")
	if o.Has("id") {
		m.id = string(o.Get("id"))
	}
	if m.method == "" && m.result == nil && m.err == nil {
		return errors.New("not a message of JSON-RPC")
	}
	m.params, _ = rows.Share(m.raw)
	// A message may be in what a proxy put around it.
	if m.method == "proxy/initialize" {
		m.method = acpMethodInitialize
	} else if inner := m.params; m.method == "proxy/successor" && inner.Text("method") != "" {
		m.method, m.raw = inner.Text("method"), inner.Get("params")
		m.params, _ = rows.Share(m.raw)
	}
	m.from = cmp.Or(m.from, acpSenderOf(m.method))
	return nil
}

// acpOfAgent are methods, and groups of methods, that an agent calls.
var acpOfAgent = []string{acpMethodUpdate, acpMethodPermission, acpMethodLog, "fs", "terminal", "elicitation"}

// acpSenderOf is the side that sends a method, if the method shows it.
func acpSenderOf(method string) string {
	switch group, _, _ := strings.Cut(method, "/"); {
	case group == "" || group == "$":
		return acpUnknown
	case slices.Contains(acpOfAgent, method) || slices.Contains(acpOfAgent, group) || method[0] == '_':
		return acpAgent
	}
	return acpClient
}

// time reads an ISO 8601 time, or a number of milliseconds after it is multiplied.
func (p *acpParser) time(m *acpMessage, raw json.RawMessage, times float64) {
	var f float64
	s, isText := rows.Text(raw)
	at, ok := rows.ParseTime(s)
	if !isText && json.Unmarshal(raw, &f) == nil {
		at, ok = int64(min(max(f*times, -1), 2*rows.MaxTime)+0.5), f >= 0
	}
	if !ok || at < 0 || at > rows.MaxTime {
		p.problem("time %s cannot be read: taken as that of the message before", raw)
		return
	}
	m.at, m.timed = at, true
}
