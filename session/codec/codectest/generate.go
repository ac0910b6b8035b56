package codectest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Times that sessions are made of, in Unix milliseconds.
const (
	began    = 1_795_198_540_000
	lastTime = 253_402_300_799_999 // the end of the year 9999
)

// Generate makes a valid session, one of which [session.Check] finds nothing, of
// anything that a store may hold: every role, every type of part in every state,
// rewinds, forks, compactions, decisions, blobs, columns that are empty or null,
// texts of any script, JSON in any spelling, and times that stand still or are far
// away. The same numbers of r give the same session.
//
// size bounds how many messages there are and how many parts each has; 0 gives a
// session without messages. So a fault is looked for among small sessions first.
func Generate(r *rand.Rand, size int) *codec.Session {
	g := &generator{r: r, size: size, blobs: make(map[string]bool)}
	g.base = r.Uint32()
	g.idStyle, g.clock = r.IntN(5), pick(g, clockNow, clockNow, clockNow, clockNow, clockStill, clockEarly, clockLate)
	g.plain = g.chance(3)
	g.loose = !g.plain && g.chance(4)
	g.now = map[clock]int64{clockNow: began, clockStill: began, clockEarly: 0, clockLate: lastTime - 1_000_000}[g.clock]
	g.session()
	if size > 0 {
		for range r.IntN(size + 1) {
			g.message()
			if len(g.s.Messages) > 1 && g.chance(8) {
				g.rewind()
			}
		}
	}
	g.finish()
	return g.s
}

type clock int

// How the clock of a session goes: as it does, not at all, from 1970, towards the
// year 9999.
const (
	clockNow clock = iota
	clockStill
	clockEarly
	clockLate
)

// generator is one run of Generate.
type generator struct {
	r     *rand.Rand
	s     *codec.Session
	size  int
	clock clock
	now   int64
	n     int // ids made
	// base distinguishes the ids of this session from those of others.
	base uint32
	// idStyle is how ids are spelled. loose reports that times and hidden messages are
	// what no agent gives but an import may, plain that everything is as this project
	// writes it.
	idStyle      int
	loose, plain bool
	blobs        map[string]bool
}

func pick[T any](g *generator, of ...T) T { return of[g.r.IntN(len(of))] }

func (g *generator) chance(in int) bool { return g.r.IntN(in) == 0 }

// maybe is the value one time in three.
func maybe[T any](g *generator, v T) *T {
	if g.chance(3) {
		return &v
	}
	return nil
}

// tick lets time pass, or not.
func (g *generator) tick(maximum int64) int64 {
	if g.clock != clockStill {
		g.now += g.r.Int64N(maximum)
	}
	return g.now
}

func (g *generator) id(prefix string) string {
	g.n++
	switch g.idStyle {
	case 0, 1:
		return spans.DeriveID(prefix, g.now, "codectest", fmt.Sprint(g.r.Uint64()), fmt.Sprint(g.n))
	case 2:
		sum := sha256.Sum256(fmt.Append(nil, prefix, g.r.Uint64(), g.n))
		sum[6], sum[8] = sum[6]&0x0F|0x40, sum[8]&0x3F|0x80
		h := hex.EncodeToString(sum[:16])
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	case 3:
		return fmt.Sprintf("%s%d.%d", strings.TrimSuffix(prefix, "_"), g.base, g.n)
	}
	return fmt.Sprintf("%s %d/é:\"%d\"", prefix, g.n, g.base)
}

func (g *generator) session() {
	row := session.Session{
		ID: g.id(spans.PrefixSession), Title: pick(g, "New Chat", "", g.words()),
		Agent:       pick(g, "coder", "", "unknown", g.words()),
		WorkspaceID: maybe(g, pick(g, "wks_1", "")), WorkspaceRoot: maybe(g, pick(g, "/work space/é", "C:\\work", "")),
		Mode: maybe(g, pick(g, "plan", "", g.words())),
		ModelJSON: maybe(g, pick(g, `{"provider_id":"openai","model_id":"gpt-5"}`, `{}`, `{"model_id":"m","later":[1]}`,
			`{ "provider_id": "p", "model_id": "a/b", "variant": "high" }`)),
		PermissionsJSON: pick(g, "[]", "[]", permissions, ` [ ]`), MetadataJSON: g.sessionMetadata(), CreatedAt: g.now,
	}
	if g.chance(4) {
		row.ParentID = new(g.id(spans.PrefixSession))
		row.ParentMessageID = maybe(g, g.id(spans.PrefixMessage))
	}
	g.s = &codec.Session{Transcript: &session.Transcript{Session: row}}
}

const permissions = `[{"permission":"bash","pattern":"ls *","action":"allow","source":"session",` +
	`"added_at":1795198540001},{"permission":"*","pattern":"","action":"ask"},{"permission":"web","pattern":"*",` +
	`"action":"deny","source":"manifest","later":{"x":null}}]`

func (g *generator) sessionMetadata() string {
	if g.chance(2) {
		return "{}"
	}
	var members []string
	for _, m := range []string{
		`"agenttrace":{"outcome":"error","error":"boom"}`, `"status":{"state":"idle","at":1795198540001}`,
		`"a":[1,{"b":null}]`, `"é <&> key":"\u2028"`,
		`"jutul":{"session_events":[]}`, `"acp":{"x":1}`, `"agentdbg":7`, `"skillet":{"user":"u"}`, `"user_id":"u@x"`,
		`"":""`,
	} {
		if g.chance(4) {
			members = append(members, m)
		}
	}
	return g.object(members...)
}

// object spells a JSON object of its members.
func (g *generator) object(members ...string) string {
	if g.plain {
		return "{" + strings.Join(members, ",") + "}"
	}
	switch g.r.IntN(8) {
	case 0:
		return "{ " + strings.Join(members, " ,\t") + "\n}"
	case 1:
		members = slices.Clone(members)
		g.r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	}
	return "{" + strings.Join(members, ",") + "}"
}

// quoted is a JSON string of the text in its one spelling, for what a column repeats.
func quoted(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err) // of a string
	}
	return string(raw)
}

// str spells a JSON string of the text, or of one that no column could hold.
func (g *generator) str(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(g.chance(2))
	if err := e.Encode(text); err != nil {
		panic(err) // of a string
	}
	s := strings.TrimSuffix(b.String(), "\n")
	if g.plain {
		return s
	}
	switch g.r.IntN(12) {
	case 0: // nothing but ASCII
		b.Reset()
		for _, r := range s {
			switch {
			case r < 0x80:
				b.WriteRune(r)
			case r < 0x10000:
				fmt.Fprintf(&b, `\u%04X`, r)
			default:
				r -= 0x10000
				fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
			}
		}
		return b.String()
	case 1:
		return strings.ReplaceAll(s, "/", `\/`)
	case 2:
		return s[:len(s)-1] + pick(g, `\u0000`, `\ud83d`, `\udc00x`) + `"`
	}
	return s
}

// words is a text. It never has a NUL byte.
func (g *generator) words() string {
	var all []string
	for range 1 + g.r.IntN(3) {
		all = append(all, texts[g.r.IntN(len(texts))])
	}
	text := strings.Join(all, " ")
	if g.size > 6 && g.chance(20) {
		text = strings.Repeat(text+"\n", 200)
	}
	return text
}

var texts = []string{
	"", "hello", "Fix the build", "a\nb\r\nc\rd", "  spaces\tand tabs ", "\"quoted\" \\ back`tick`",
	"<script>alert(1)</script> & more", "héllo", "日本語",
	"👩‍👩‍👧‍👦 family", "e\u0301 combining z\u0335\u0300", "\u2028\u2029", "\u202eright to left",
	"\u0001\u0008\u000c\u001b[31m\u001f\u007f\u0085", "\ufeffmark", "\ufffd\uffff\U0010FFFF",
	`{"type":"session","data":{}}`, "{", "]", "null", "data: event", "=1+1", "---\n# Title", "%s %d %!",
	"../../etc/passwd", "1e999", "\u00a0", "ﷺ",
}

// value spells any JSON value.
func (g *generator) value() string {
	return pick(g, `null`, `true`, `0`, `-0`, `1.50`, `1e-05`, `12345678901234567890`, `1e400`, `[]`, `{}`,
		`[[],{"a":[null]}]`, `{"b":1,"a":{"c":"d"}}`, `{ "spaced" : [ 1 , 2 ] }`, g.str(g.words()))
}

func (g *generator) message() {
	role := pick(g, session.RoleUser, session.RoleUser, session.RoleAssistant, session.RoleAssistant,
		session.RoleAssistant, session.RoleSystem)
	at := g.tick(50)
	m := session.MessageAndParts{Message: session.Message{ID: g.id(spans.PrefixMessage), SessionID: g.s.Session.ID,
		Role: role, CreatedAt: at}}
	if role == session.RoleAssistant && g.chance(10) {
		m.Parts = append(m.Parts, g.part(&m.Message, g.compaction()))
	} else {
		for range g.r.IntN(g.size + 1) {
			m.Parts = append(m.Parts, g.part(&m.Message, g.data(role)))
		}
	}
	for i := range m.Parts {
		m.Parts[i].Index = int64(i)
	}
	m.Message.UpdatedAt = g.now
	if g.loose {
		m.Message.UpdatedAt = m.Message.CreatedAt + g.r.Int64N(20)
	}
	incomplete := false
	if n := len(m.Parts); n > 0 && g.chance(10) {
		for i := g.r.IntN(n); i < n; i++ {
			m.Parts[i].Index += int64(1 + g.r.IntN(2)*i)
		}
		slices.SortFunc(m.Parts, func(p, q session.Part) int { return cmp.Compare(p.Index, q.Index) })
		for i := 1; i < n; i++ {
			m.Parts[i].Index = max(m.Parts[i].Index, m.Parts[i-1].Index+1)
		}
		incomplete = true
	}
	m.Message.MetadataJSON = g.metadata(role, incomplete)
	if g.loose && g.chance(6) {
		m.Message.HiddenAt = new(g.now + g.r.Int64N(5))
	}
	g.s.Messages = append(g.s.Messages, m)
	if role == session.RoleAssistant {
		g.decide(&m)
	}
}

// part makes the row of what the data says.
func (g *generator) part(m *session.Message, data string) session.Part {
	p := partOf(data)
	p.ID, p.MessageID, p.SessionID, p.CreatedAt = g.id(spans.PrefixPart), m.ID, m.SessionID, g.now
	p.UpdatedAt = g.tick(20)
	if g.loose {
		p.CreatedAt = max(0, m.CreatedAt+g.r.Int64N(40)-20)
		p.UpdatedAt = p.CreatedAt + g.r.Int64N(40)
	}
	if !session.IsToolType(p.Type) && !g.plain && g.chance(40) {
		p.ToolCallID = new(g.id("call_"))
	}
	if !g.plain && g.chance(40) {
		p.ContinuationRunID = new(g.id("run_"))
	}
	return p
}

// decide adds decisions on the calls of a message, and now and then on none.
func (g *generator) decide(m *session.MessageAndParts) {
	for i := range m.Parts {
		p := &m.Parts[i]
		if !session.IsToolType(p.Type) || !g.chance(3) {
			continue
		}
		d := g.decision(m.Message.ID)
		d.PartID, d.ToolCallID, d.ToolID = p.ID, *p.ToolCallID, strings.TrimPrefix(p.Type, "tool-")
		g.s.Decisions = append(g.s.Decisions, d)
	}
	if g.chance(12) {
		g.s.Decisions = append(g.s.Decisions, g.decision(pick(g, m.Message.ID, "")))
	}
}

func (g *generator) decision(messageID string) store.Decision {
	d := store.Decision{
		ID: g.id(spans.PrefixPermission), SessionID: g.s.Session.ID, MessageID: messageID,
		ToolID:  pick(g, "bash", "mcp__x"),
		Pattern: pick(g, "", "rm *", "é"),
		Action:  pick(g, "allow", "deny", "ask"), Source: pick(g, "", "manifest", "session", "project"),
		Outcome: pick(g, "allowed", "denied", "pending"),
		Reply:   pick(g, "", "once", "always", "reject"), Reason: pick(g, "", g.words()),
		WaitedMS: maybe(g, g.r.Int64N(5000)), DecidedAt: g.now,
	}
	if g.chance(3) {
		d.TraceID, d.SpanID = fmt.Sprintf("%032x", 1+g.n), fmt.Sprintf("%016x", 1+g.n)
	}
	return d
}

// rewind hides what came after a message.
func (g *generator) rewind() {
	g.tick(3)
	to := g.r.IntN(len(g.s.Messages))
	for i := to + 1; i < len(g.s.Messages); i++ {
		if m := &g.s.Messages[i].Message; m.HiddenAt == nil {
			m.HiddenAt = new(g.now)
		}
	}
	g.tick(3)
}

// finish puts the rows in order and makes the session's row what they report.
func (g *generator) finish() {
	g.s.Transcript = g.s.Sorted()
	g.s.Decisions = jsonl.SortedDecisions(g.s.Decisions)
	row := &g.s.Session
	row.UpdatedAt = g.tick(10)
	row.ArchivedAt = maybe(g, g.now)
	for i := range g.s.Messages {
		if m := &g.s.Messages[i].Message; m.Role == session.RoleAssistant {
			_, cost := session.UsageOf(m.MetadataJSON)
			row.CostUSD = store.AddCost(row.CostUSD, cost)
		}
	}
	if !g.plain && g.chance(6) {
		row.CostUSD = pick(g, 0, 0.25, 1e-9, 12345678.875, 0.1+0.2)
	}
	row.SetUsage(g.s.ContextUsage())
	g.origin()
	g.annotate()
}

// annotate adds tags, notes and scores to some sessions, some of which are undone or have lost their target.
func (g *generator) annotate() {
	if !g.chance(3) {
		return
	}
	for range 1 + g.r.IntN(5) {
		n := store.Annotation{
			SessionID: g.s.Session.ID, Kind: pick(g, store.AnnotationTag, store.AnnotationNote, store.AnnotationScore),
			Author: pick(g, "", "ann", "é \"b\""), CreatedAt: g.now + int64(g.r.IntN(9)),
		}
		if n.Name = pick(g, "good", "to review", "é=1"); n.Kind == store.AnnotationNote {
			n.Name, n.Comment = "", "see "+g.words()
		} else {
			n.Comment = pick(g, "", g.words())
		}
		if n.Kind == store.AnnotationScore {
			n.Value = pick(g, 0, 1, -0.25, 0.1+0.2, 1e21)
		}
		if len(g.s.Messages) > 0 && g.chance(2) {
			m := pick(g, g.s.Messages...)
			if n.MessageID = m.Message.ID; len(m.Parts) > 0 && g.chance(2) {
				n.PartID = pick(g, m.Parts...).ID
			}
		} else if g.chance(5) {
			n.MessageID = "gone"
		}
		n.UpdatedAt = n.CreatedAt + int64(g.r.IntN(3))
		if g.chance(4) {
			n.DeletedAt = new(n.UpdatedAt)
		}
		n.Identify()
		if !slices.ContainsFunc(g.s.Annotations, func(o store.Annotation) bool { return o.ID == n.ID }) {
			g.s.Annotations = append(g.s.Annotations, n)
		}
	}
	slices.SortFunc(g.s.Annotations, store.CompareAnnotations)
}

// origin adds what a store remembers of how a session came about, in some sessions.
// Nothing of it contradicts the rows.
func (g *generator) origin() {
	if !g.chance(3) {
		return
	}
	id := g.s.Session.ID
	g.s.State = &store.State{Stamps: map[string]store.Stamp{
		"title": {At: g.r.Int64(), Rank: store.RankFinal, Sum: g.r.Uint32()}, "metadata.é \"": {At: -1},
	}}
	if g.chance(2) {
		at := g.now
		for slices.ContainsFunc(g.s.Messages, func(m session.MessageAndParts) bool {
			return m.Message.HiddenAt != nil && *m.Message.HiddenAt == at
		}) {
			at++ // what was hidden then would be shown again
		}
		g.s.State.Rewinds = []store.Rewind{{To: pick(g, id, "another"), At: at, Undone: true}}
	}
	trace := fmt.Sprintf("%032x", 1+g.r.Int64N(1<<40))
	g.s.Traces = []string{trace}
	for i := range g.s.Messages {
		m := &g.s.Messages[i]
		l := store.SpanRef{
			SessionID: id, TraceID: trace, SpanID: fmt.Sprintf("%016x", 1+i), MessageID: m.Message.ID,
			Kind:    pick(g, "session.turn", "chat", "side.é"),
			Dialect: pick(g, "agenttrace", "vercel"), StartNano: m.Message.CreatedAt * 1e6,
			EndNano: m.Message.UpdatedAt*1e6 + 1, Error: g.chance(4),
		}
		if len(m.Parts) > 0 && g.chance(2) {
			l.PartID, l.ParentSpanID = m.Parts[0].ID, fmt.Sprintf("%016x", 1<<40)
			if g.chance(2) {
				g.s.RequestedIndexes = append(g.s.RequestedIndexes,
					store.RequestedIndex{MessageID: m.Message.ID, PartID: m.Parts[0].ID, RequestedIndex: g.r.Int64N(3)})
			}
		}
		if m.Message.Role == session.RoleAssistant && g.chance(2) {
			l.TurnStats = &store.TurnStats{Step: g.chance(2), Agent: g.words(),
				Usage: &session.Usage{Input: g.r.Int64N(99)}}
		}
		g.s.SpanRefs = append(g.s.SpanRefs, l)
	}
}
