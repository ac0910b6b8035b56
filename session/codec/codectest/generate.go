package codectest

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // the grammar
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

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

// Generate makes a valid session, one of which [session.Check] finds nothing, of anything that a store may hold: every
// role, every type of part in every state, rewinds, forks, compactions, decisions, blobs, columns that are empty or
// null, texts of any script, JSON in any spelling, and times that stand still or are far away. The same numbers of r
// give the same session. What rows say is in grammar.txt.
//
// size bounds how many messages there are and how many parts each has; 0 gives a
// session without messages. So a fault is looked for among small sessions first.
func Generate(r *rand.Rand, size int) *codec.Session {
	g := &generator{r: r, size: size, base: r.Uint32(), idStyle: r.IntN(5), is: make(map[string]bool),
		s: &codec.Session{Transcript: new(session.Transcript)}}
	// Most clocks go as they do; some stand still, or are at the beginning or the end of time.
	g.now = pick[int64](g, began, began, began, began, 0, lastTime-1_000_000)
	g.still = g.chance(7)
	g.is["free"] = !g.chance(3)
	g.loose = g.is["free"] && g.chance(4)
	if err := g.s.Session.DecodeJSON([]byte(g.give("session"))); err != nil {
		panic(err)
	}
	g.s.Session.CreatedAt = g.now
	for range g.r.IntN(size + 1) {
		g.message()
		if len(g.s.Messages) > 1 && g.chance(8) {
			g.rewind()
		}
	}
	g.finish()
	return g.s
}

// generator is one run of Generate.
type generator struct {
	r     *rand.Rand
	s     *codec.Session
	size  int
	now   int64
	still bool // time does not pass
	n     int  // ids made
	// base distinguishes the ids of this session from those of others.
	base uint32
	// idStyle is how ids are spelled. loose reports that times and hidden messages are
	// what no agent gives but an import may.
	idStyle int
	loose   bool
	// is has what lines of the grammar ask for: free reports that not everything is as this project writes it.
	is map[string]bool
}

func pick[T any](g *generator, of ...T) T { return of[g.r.IntN(len(of))] }

func (g *generator) chance(in int) bool { return g.r.IntN(in) == 0 }

// tick lets time pass, or not.
func (g *generator) tick(maximum int64) int64 {
	if !g.still {
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
		return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	case 3:
		return fmt.Sprintf("%s%d.%d", strings.TrimSuffix(prefix, "_"), g.base, g.n)
	}
	return fmt.Sprintf("%s %d/é:\"%d\"", prefix, g.n, g.base)
}

// rule is one of the grammar: a choice of its lines, or members of an object.
type rule struct {
	kind  byte // ':', '[' or '{'
	lines []ruleLine
}

type ruleLine struct {
	text string
	in   int    // it is taken one time in so many
	flag string // and only where that is so
}

//go:embed grammar.txt
var grammarText string

var grammar = readGrammar()

func readGrammar() map[string]*rule {
	all, name := make(map[string]*rule), ""
	for line := range strings.SplitSeq(grammarText, "\n") {
		text, isLine := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || line[0] == '#':
			continue
		case !isLine:
			name = strings.TrimRight(line, ":[{ ")
			all[name] = &rule{kind: line[len(line)-1]}
			continue
		}
		l, weight := ruleLine{in: 1}, 1
		for l.text = text; ; l.text = text {
			var word string
			if word, text, _ = strings.Cut(text, " "); strings.HasPrefix(word, "1/") {
				l.in = must(strconv.Atoi(word[2:]))
			} else if strings.HasPrefix(word, "*") {
				weight = must(strconv.Atoi(word[1:]))
			} else if strings.HasPrefix(word, "?") {
				l.flag = word[1:]
			} else {
				break
			}
		}
		all[name].lines = append(all[name].lines, slices.Repeat([]ruleLine{l}, weight)...)
	}
	return all
}

// give is what a rule gives.
func (g *generator) give(name string) string {
	r := grammar[name]
	if r == nil {
		panic("grammar.txt has no rule " + name)
	}
	lines := slices.DeleteFunc(slices.Clone(r.lines), func(l ruleLine) bool { return l.flag != "" && !g.is[l.flag] })
	if r.kind == ':' {
		return g.expand(pick(g, lines...).text)
	}
	var members []string
	seen := make(map[string]bool)
	for _, l := range lines {
		if !g.chance(l.in) {
			continue
		}
		// Of two members with one key the first is taken. What another rule gives has other keys.
		if key, _, isMember := strings.Cut(l.text, `":`); isMember && seen[key] {
			continue
		} else if isMember {
			seen[key] = true
		}
		if text := g.expand(l.text); text != "" {
			members = append(members, text)
		}
	}
	if r.kind == '[' {
		return strings.Join(members, ",")
	}
	return g.object(members)
}

// object spells a JSON object of its members.
func (g *generator) object(members []string) string {
	switch {
	case !g.is["free"]:
	case g.chance(8):
		return "{ " + strings.Join(members, " ,\t") + "\n}"
	case g.chance(7):
		g.r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	}
	return "{" + strings.Join(members, ",") + "}"
}

var placeholder = regexp.MustCompile(`<("?)([a-z-]+)(?::(\w+))?>`)

// expand puts what rules give in the place of their names.
func (g *generator) expand(line string) string {
	return placeholder.ReplaceAllStringFunc(line, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		switch name, arg := m[2], m[3]; {
		case m[1] != "":
			return quoted(g.give(name))
		case name == "string":
			return g.str(g.words())
		case name == "text":
			return quoted(g.words())
		case name == "n":
			return fmt.Sprint(g.r.Int64N(must(strconv.ParseInt(arg, 10, 64))))
		case name == "id":
			return quoted(g.id(arg))
		case name == "hex":
			return fmt.Sprintf(`"%0*x"`, must(strconv.Atoi(arg)), 1+g.n)
		case name == "blob":
			return quoted(g.blob(store.BlobKind(arg)))
		case name == "message-id" && len(g.s.Messages) > 0:
			return quoted(pick(g, g.s.Messages...).Message.ID)
		case name == "message-id":
			return "null"
		default:
			return g.give(name)
		}
	})
}

// rowOf decodes the members that a rule gives.
func rowOf[T any](g *generator, name string) (row T) {
	end(name+": ", json.Unmarshal([]byte("{"+g.give(name)+"}"), &row))
	return row
}

// quoted is a JSON string of the text in its one spelling, for what a column repeats.
func quoted(text string) string { return string(must(json.Marshal(text))) }

// str spells a JSON string of the text, or of one that no column could hold.
func (g *generator) str(text string) string {
	s := quoted(text)
	if g.chance(2) {
		s = string(must(jsontext.AppendQuote(nil, text))) // without escapes that HTML needs
	}
	if !g.is["free"] {
		return s
	}
	switch g.r.IntN(12) {
	case 0: // escapes that it need not have
		return strings.NewReplacer("o", `\u006f`, "é", `\u00e9`).Replace(s)
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
		all = append(all, must(strconv.Unquote(pick(g, grammar["texts"].lines...).text)))
	}
	text := strings.Join(all, " ")
	if g.size > 6 && g.chance(20) {
		text = strings.Repeat(text+"\n", 200)
	}
	return text
}

// blob returns the digest of a text that the session brings, or, now and then, of one that nobody has.
func (g *generator) blob(kind store.BlobKind) string {
	var body string
	end("body: ", json.Unmarshal([]byte(g.give("body")), &body))
	brought := !g.chance(6)
	if !brought {
		body = g.id("lost ")
	}
	b := store.Blob{Kind: kind, Digest: session.Digest(body), Body: body, Exact: true}
	if brought && !slices.Contains(g.s.Blobs, b) {
		g.s.Blobs = append(g.s.Blobs, b)
	}
	return b.Digest
}

func (g *generator) message() {
	role := pick(g, session.RoleUser, session.RoleUser, session.RoleAssistant, session.RoleAssistant,
		session.RoleAssistant, session.RoleSystem)
	answers := role == session.RoleAssistant
	at := g.tick(50)
	m := session.MessageAndParts{Message: session.Message{ID: g.id(spans.PrefixMessage), SessionID: g.s.Session.ID,
		Role: role, CreatedAt: at}}
	if answers && g.chance(10) {
		m.Parts = append(m.Parts, g.part(&m.Message, g.give("compaction")))
	} else {
		for range g.r.IntN(g.size + 1) {
			kind := "part"
			if answers {
				kind = "assistant-part"
			}
			m.Parts = append(m.Parts, g.part(&m.Message, g.give(kind)))
		}
	}
	m.Message.UpdatedAt = g.now
	if g.loose {
		m.Message.UpdatedAt = m.Message.CreatedAt + g.r.Int64N(20)
	}
	for i := range m.Parts {
		m.Parts[i].Index = int64(i)
	}
	n := len(m.Parts)
	incomplete := n > 0 && g.chance(10)
	if incomplete { // with gaps from some part on
		for i := g.r.IntN(n); i < n; i++ {
			m.Parts[i].Index += int64(1 + g.r.IntN(2)*i)
		}
		slices.SortFunc(m.Parts, func(p, q session.Part) int { return cmp.Compare(p.Index, q.Index) })
		for i := 1; i < n; i++ {
			m.Parts[i].Index = max(m.Parts[i].Index, m.Parts[i-1].Index+1)
		}
	}
	g.is["incomplete"], g.is["assistant"], g.is["traced"] = incomplete, answers, incomplete || answers || g.chance(10)
	m.Message.MetadataJSON = g.give("metadata")
	if g.loose && g.chance(6) {
		m.Message.HiddenAt = new(g.now + g.r.Int64N(5))
	}
	g.s.Messages = append(g.s.Messages, m)
	if answers {
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
	if !session.IsToolType(p.Type) && g.is["free"] && g.chance(40) {
		p.ToolCallID = new(g.id("call_"))
	}
	if g.is["free"] && g.chance(40) {
		p.ContinuationRunID = new(g.id("run_"))
	}
	return p
}

// decide adds decisions on the calls of a message, and now and then on none.
func (g *generator) decide(m *session.MessageAndParts) {
	decision := func(messageID string) store.Decision {
		d := rowOf[store.Decision](g, "decision")
		d.ID, d.SessionID, d.MessageID, d.DecidedAt = g.id(spans.PrefixPermission), g.s.Session.ID, messageID, g.now
		return d
	}
	for i := range m.Parts {
		if p := &m.Parts[i]; session.IsToolType(p.Type) && g.chance(3) {
			d := decision(m.Message.ID)
			d.PartID, d.ToolCallID, d.ToolID = p.ID, *p.ToolCallID, strings.TrimPrefix(p.Type, "tool-")
			g.s.Decisions = append(g.s.Decisions, d)
		}
	}
	if g.chance(12) {
		g.s.Decisions = append(g.s.Decisions, decision(pick(g, m.Message.ID, "")))
	}
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
	if g.chance(3) {
		row.ArchivedAt = new(g.now)
	}
	sumUp(g.s)
	if g.is["free"] && g.chance(6) {
		row.CostUSD = pick(g, 0, 0.25, 1e-9, 12345678.875, 0.1+0.2)
	}
	if g.chance(3) {
		g.origin()
	}
	if g.chance(3) {
		g.annotate()
	}
}

// Generated are n sessions of Generate, small ones first. The same call gives the same sessions.
func Generated(n int) []Sample {
	all := make([]Sample, n)
	for i := range all {
		all[i] = Sample{fmt.Sprintf("generated %d", i),
			Generate(rand.New(rand.NewPCG(uint64(i), 1)), i%12*(1+i)/(n+1)+min(i, 2))}
	}
	return all
}

// annotate adds tags, notes and scores, some of which are undone or have lost their target.
func (g *generator) annotate() {
	for range 1 + g.r.IntN(5) {
		n := rowOf[store.Annotation](g, "annotation")
		n.SessionID, n.CreatedAt = g.s.Session.ID, g.now+int64(g.r.IntN(9))
		if n.Kind != store.AnnotationScore {
			n.Value = new(0.0)
		}
		if n.Kind == store.AnnotationNote {
			n.Comment = "see " + n.Comment
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
	g.s.Annotations = session.SortedRows(g.s.Annotations, store.CompareAnnotations)
}

// origin adds what a store remembers of how a session came about. Nothing of it contradicts the rows.
func (g *generator) origin() {
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
		l := rowOf[store.SpanRef](g, "span")
		l.SessionID, l.TraceID, l.SpanID, l.MessageID = id, trace, fmt.Sprintf("%016x", 1+i), m.Message.ID
		l.StartNano, l.EndNano = m.Message.CreatedAt*1e6, m.Message.UpdatedAt*1e6+1
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

// handmade is a session that was made by hand, as the files have it. What it does not have has its usual value.
type handmade struct {
	Session   json.RawMessage // the row
	Messages  []message
	Decisions []json.RawMessage
	Blobs     map[store.BlobKind]json.RawMessage
}

type message struct {
	Role     string
	At       int64
	Hidden   *int64
	Metadata json.RawMessage
	Parts    []json.RawMessage
	Indexes  []int64 // of the parts, if they are not 0, 1 and so on
}

// read reads a session that was made by hand.
func read(name, text string) (h handmade) {
	end("session "+name+": ", json.Unmarshal([]byte(text), &h))
	return h
}

// rows are those of the session.
func (h *handmade) rows() *codec.Session {
	s := &codec.Session{Transcript: &session.Transcript{Session: session.Session{
		Title: "New Chat", Agent: "coder", PermissionsJSON: "[]", MetadataJSON: "{}",
	}}}
	row := &s.Session
	end("", row.DecodeJSON(h.Session))
	for n, m := range h.Messages {
		added := session.MessageAndParts{Message: session.Message{
			ID: fmt.Sprintf("msg_%s_%03d", row.ID, n+1), SessionID: row.ID, Role: m.Role,
			MetadataJSON: cmp.Or(string(m.Metadata), "{}"), HiddenAt: m.Hidden, CreatedAt: m.At, UpdatedAt: m.At,
		}}
		for i, data := range m.Parts {
			p := partOf(string(data))
			p.ID, p.Index = fmt.Sprintf("prt_%s_%03d_%02d", row.ID, n+1, i), int64(i)
			if m.Indexes != nil {
				p.Index = m.Indexes[i]
			}
			p.MessageID, p.SessionID, p.CreatedAt, p.UpdatedAt = added.Message.ID, row.ID, m.At, m.At
			added.Parts = append(added.Parts, p)
		}
		s.Messages = append(s.Messages, added)
		row.UpdatedAt = max(row.UpdatedAt, m.At)
	}
	s.Decisions = make([]store.Decision, len(h.Decisions))
	for i, text := range h.Decisions {
		end("", s.Decisions[i].DecodeJSON(text))
	}
	for _, kind := range slices.Sorted(maps.Keys(h.Blobs)) {
		b := store.Blob{Kind: kind}
		must(b.DecodeJSON(h.Blobs[kind]))
		s.Blobs = append(s.Blobs, b)
	}
	sumUp(s)
	return s
}

// partOf is the row of a part with what its data reports.
func partOf(data string) session.Part {
	var d struct {
		Type, State string
		ToolCallID  string `json:"toolCallId"`
	}
	if err := json.Unmarshal([]byte(data), &d); err != nil {
		panic(fmt.Sprintf("part %s: %v", data, err))
	}
	p := session.Part{Type: d.Type, DataJSON: data}
	if session.IsToolType(d.Type) {
		p.ToolCallID, p.ToolState = &d.ToolCallID, &d.State
	}
	return p
}

func sumUp(s *codec.Session) {
	row := &s.Session
	row.SetUsage(s.ContextUsage())
	for i := range s.Messages {
		if m := &s.Messages[i].Message; m.Role == session.RoleAssistant {
			_, cost := session.UsageOf(m.MetadataJSON)
			row.CostUSD = store.AddCost(row.CostUSD, cost)
		}
	}
}

// corpus and markedText have sessions that were made by hand, as JSON of [handmade] after the name.
var (
	//go:embed corpus.txt
	corpus string
	//go:embed marked.txt
	markedText string
)

// Corpus are the sessions of the suite that were made by hand, each an example of one thing. The caller owns them.
func Corpus() (all []Sample) {
	for name, text := range sections(corpus) {
		h := read(name, text)
		all = append(all, Sample{name, h.rows()})
	}
	return all
}

// sections are the names and the texts of sessions in a file.
func sections(file string) iter.Seq2[string, string] {
	return func(yield func(name, text string) bool) {
		for _, text := range strings.Split("\n"+file, "\n= ")[1:] {
			if name, text, _ := strings.Cut(text, "\n"); !yield(name, text) {
				return
			}
		}
	}
}

// marked is a session with two turns of every frequent part. Its texts are those of the place of the session.
func marked(place int) *codec.Session {
	h := read("marked", strings.ReplaceAll(markedText, "PLACE", fmt.Sprint(place)))
	return h.rows()
}

//go:embed hostile.txt
var hostile string

// Hostile are texts that try to be something else than text where they are written, or not to end there.
var Hostile = readHostile()

func readHostile() (all []string) {
	for line := range strings.SplitSeq(hostile, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		text, err := strconv.Unquote(line)
		if err != nil {
			panic("hostile.txt: " + line)
		}
		all = append(all, text)
	}
	return append(all,
		strings.Repeat("> ", 200)+"deep", strings.Repeat("- ", 200)+"deep", strings.Repeat("*a **b ", 60),
		strings.Repeat("[", 200)+strings.Repeat("](http://x)", 200),
		strings.Repeat("![", 90)+"a"+strings.Repeat("](http://x.y)", 90),
	)
}
