package codectest

import (
	_ "embed" // the corpus
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// builder makes a session row by row.
type builder struct {
	*codec.Session
	n int
}

func build(id string, at int64) *builder {
	return &builder{Session: &codec.Session{Transcript: &session.Transcript{Session: session.Session{
		ID: id, Title: "New Chat", Agent: "coder", PermissionsJSON: "[]", MetadataJSON: "{}",
		CreatedAt: at, UpdatedAt: at,
	}}}}
}

// add adds a message of the parts, at the time.
func (b *builder) add(at int64, role, metadata string, parts ...string) *session.MessageAndParts {
	b.n++
	m := session.MessageAndParts{Message: session.Message{
		ID: fmt.Sprintf("msg_%s_%03d", b.Session.Session.ID, b.n), SessionID: b.Session.Session.ID, Role: role,
		MetadataJSON: metadata, CreatedAt: at, UpdatedAt: at,
	}}
	b.Messages = append(b.Messages, m)
	b.Session.Session.UpdatedAt = max(b.Session.Session.UpdatedAt, at)
	added := &b.Messages[len(b.Messages)-1]
	for i, data := range parts {
		b.part(added, int64(i), data)
	}
	return added
}

// part adds a part to a message.
func (b *builder) part(m *session.MessageAndParts, index int64, data string) {
	p := partOf(data)
	p.ID, p.Index = fmt.Sprintf("prt_%s_%03d_%02d", m.Message.SessionID, b.n, len(m.Parts)), index
	p.MessageID, p.SessionID = m.Message.ID, m.Message.SessionID
	p.CreatedAt, p.UpdatedAt = m.Message.CreatedAt, m.Message.UpdatedAt
	m.Parts = append(m.Parts, p)
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

// done makes the sums what the messages say.
func (b *builder) done() *codec.Session {
	sumUp(b.Session)
	return b.Session
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

func said(text string) string { return `{"type":"text","text":` + quoted(text) + "}" }

// corpus has the sessions that were made by hand:
//
//	= what it is an example of
//	session {row}
//	user TIME {metadata} hidden TIME
//	  {data of a part}
//	  7 {data of a part with that index}
//	decision {row}
//	system_prompts {row}
//
//go:embed corpus.txt
var corpus string

// Corpus are the sessions of the suite that were made by hand, each an example of one thing. The caller owns them.
func Corpus() (all []Sample) {
	for name, rows := range sections(corpus) {
		b := build("", 0)
		b.rows(name, rows)
		all = append(all, Sample{name, b.done()})
	}
	return all
}

// sections are the names and the rows of sessions in a file.
func sections(file string) iter.Seq2[string, string] {
	return func(yield func(name, rows string) bool) {
		for _, text := range strings.Split("\n"+file, "\n= ")[1:] {
			if name, rows, _ := strings.Cut(text, "\n"); !yield(name, rows) {
				return
			}
		}
	}
}

func (b *builder) rows(name, rows string) {
	for line := range strings.Lines(rows) {
		if err := b.line(strings.TrimSuffix(line, "\n")); err != nil {
			panic(fmt.Sprintf("session %s: %v: %s", name, err, line))
		}
	}
}

// line adds the row of a line of the corpus.
func (b *builder) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "session":
		return b.Session.Session.DecodeJSON([]byte(rest))
	case session.RoleUser, session.RoleAssistant, session.RoleSystem:
		at, metadata, _ := strings.Cut(rest, " ")
		metadata, hidden, isHidden := strings.Cut(metadata, " hidden ")
		n, err := strconv.ParseInt(at, 10, 64)
		m := b.add(n, word, metadata)
		if isHidden && err == nil {
			n, err = strconv.ParseInt(hidden, 10, 64)
			m.Message.HiddenAt = &n
		}
		return err
	case "": // a part, or no line
		if data := strings.TrimSpace(rest); data != "" {
			m := &b.Messages[len(b.Messages)-1]
			index := int64(len(m.Parts))
			if n, after, ok := strings.Cut(data, " "); ok && data[0] != '{' {
				var err error
				if index, err = strconv.ParseInt(n, 10, 64); err != nil {
					return err
				}
				data = after
			}
			b.part(m, index, data)
		}
	case "decision":
		b.Decisions = append(b.Decisions, store.Decision{})
		return b.Decisions[len(b.Decisions)-1].DecodeJSON([]byte(rest))
	default:
		b.Blobs = append(b.Blobs, store.Blob{Kind: store.BlobKind(word)})
		_, err := b.Blobs[len(b.Blobs)-1].DecodeJSON([]byte(rest))
		return err
	}
	return nil
}

// marked is a session with two turns of every frequent part. Its texts are those of the place of the session.
func marked(place int) *codec.Session {
	b := build(fmt.Sprintf("ses_marked%d", place), began+int64(place)*math.MaxUint16)
	at := b.Session.Session.CreatedAt
	for turn := range 2 {
		text := func(n int) string { return fmt.Sprintf("mark%dx%dx%d", place, turn, n) }
		b.add(at, session.RoleUser, "{}", said(text(0)))
		b.add(at+1, session.RoleAssistant,
			fmt.Sprintf(`{"usage":{"input":%d,"output":1,"reasoning":0,"cache_read":0,"cache_write":0}}`, turn),
			`{"type":"step-start"}`, `{"type":"reasoning","text":"`+text(1)+`"}`,
			`{"type":"tool-bash","toolCallId":"`+text(2)+`","state":"output-available","input":{"command":"`+text(3)+`"},`+
				`"output":"`+text(4)+`"}`, said(text(5)))
		at += 1000
	}
	return b.done()
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
