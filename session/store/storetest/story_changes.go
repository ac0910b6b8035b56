package storetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// changes are what a line reports.
func (h *harness) changes(line string) []store.Batch {
	h.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	change, ok := changes[verb]
	if !ok {
		h.Fatalf("unknown change %q", line)
	}
	return change(h, h.args(rest))
}

func one(change func(h *harness, a *args) store.Batch) func(*harness, *args) []store.Batch {
	return func(h *harness, a *args) []store.Batch { return []store.Batch{change(h, a)} }
}

// changes are the words that lines of changes begin with. Arguments in capitals are needed.
var changes map[string]func(h *harness, a *args) []store.Batch

func init() {
	changes = map[string]func(h *harness, a *args) []store.Batch{
		"base":    func(*harness, *args) []store.Batch { return base() },
		"session": one((*harness).sessionChange),
		"obs":     one((*harness).observation),
		// user SESSION ID TIME
		"user": one(func(_ *harness, a *args) store.Batch { return user(a.word(), a.word(), a.int()) }),
		// assistant SESSION ID TIME TOKENS {TurnStats}
		"assistant": one(func(_ *harness, a *args) store.Batch {
			b := assistant(a.word(), a.word(), a.int(), a.int())
			a.json(b.SpanRefs[0].TurnStats)
			return b
		}),
		// message SESSION ID TIMES ROLE RANK {metadata}
		"message": one(func(_ *harness, a *args) store.Batch {
			c := store.MessageChange{SessionID: a.word(), ID: a.word()}
			c.CreatedAt, c.UpdatedAt = a.times()
			if c.Role, c.Rank = a.word(), a.rank(); c.Role == "-" {
				c.Role = ""
			}
			c.Metadata = json.RawMessage(strings.Join(a.left, " "))
			return store.Batch{Messages: []store.MessageChange{c}}
		}),
		// text SESSION MESSAGE ID INDEX TIME TEXT
		"text": one(func(_ *harness, a *args) store.Batch {
			return parts(textPart(a.word(), a.word(), a.word(), a.int(), a.int(), strings.Join(a.left, " ")))
		}),
		// part SESSION MESSAGE ID INDEX TIME RANK {data}
		"part": one(func(h *harness, a *args) store.Batch {
			c := textPart(a.word(), a.word(), a.word(), a.int(), a.int(), "")
			c.Rank, c.Data = a.rank(), json.RawMessage(strings.Join(a.left, " "))
			var data struct{ Type, State, ToolCallID string }
			h.check(json.Unmarshal(c.Data, &data))
			c.Type, c.ToolState, c.ToolCallID = data.Type, data.State, data.ToolCallID
			return parts(c)
		}),
		// call TIME RANK STATE key=value: of the call p1 of the message m1 of the session s1
		"call": one(func(_ *harness, a *args) store.Batch {
			c := textPart("s1", "m1", "p1", 0, a.int(), "")
			c.Type, c.ToolCallID, c.Rank, c.ToolState = "tool-bash", "call-p1", a.rank(), a.word()
			data := []any{"type", c.Type, "toolCallId", c.ToolCallID, "state", c.ToolState}
			a.pairs(func(key, value string) { data = append(data, key, json.RawMessage(value)) })
			if mark := [...]string{"stub", "live", ""}[c.Rank]; mark != "" {
				data = append(data, "toolMetadata", map[string]any{"agenttrace": map[string]any{mark: true}})
			}
			c.Data = object(data...)
			return parts(c)
		}),
		// span SESSION MESSAGE ID TIMES {SpanRef}
		"span": one(func(_ *harness, a *args) store.Batch {
			l := turn(a.word(), a.word(), a.word(), 0, store.TurnStats{})
			from, to := a.span()
			if l.StartNano, l.EndNano = nano(from), nano(to); l.MessageID == "-" {
				l.MessageID, l.TurnStats = "", nil
			}
			a.json(&l)
			return link(l)
		}),
		// compaction SESSION ID TIME TAIL TOKENS: "-" is no tail
		"compaction": one(func(_ *harness, a *args) store.Batch {
			return compaction(a.word(), a.word(), a.int(), strings.TrimPrefix(a.word(), "-"), a.int())
		}),
		// rewind TO TIME undone: of s1
		"rewind": one(func(_ *harness, a *args) store.Batch { return rewind(a.word(), a.int(), len(a.left) > 0) }),
		// fork ID FROM MESSAGE TIME
		"fork": one(func(_ *harness, a *args) store.Batch { return fork(a.word(), a.word(), a.word(), a.int()) }),
		// decision SESSION ID TIME OUTCOME
		"decision": one(func(_ *harness, a *args) store.Batch {
			d := store.Decision{SessionID: a.word(), ID: a.word(), DecidedAt: epoch + a.int(), Outcome: a.word(),
				ToolID: "bash", Action: "ask"}
			a.json(&d)
			return store.Batch{Decisions: []store.Decision{d}}
		}),
		// prompt DIGEST BODY exact
		"prompt": one(func(_ *harness, a *args) store.Batch {
			b := store.Blob{Kind: store.BlobSystemPrompt, Digest: a.word(), Body: a.word(), Exact: len(a.left) > 0}
			return store.Batch{Blobs: []store.Blob{b}}
		}),
		"catalog": one(func(_ *harness, a *args) store.Batch {
			return store.Batch{Blobs: []store.Blob{{Kind: store.BlobToolCatalog, Digest: a.word(), Body: "[]"}}}
		}),
		// annotation KIND NAME TIME {Annotation}: "-" is no name
		"annotation": one(func(_ *harness, a *args) store.Batch {
			kind, name := a.word(), strings.TrimPrefix(a.word(), "-")
			at := a.int()
			return annotated(annotation(kind, name, at, func(n *store.Annotation) { a.json(n) }))
		}),
		"anything": func(*harness, *args) (all []store.Batch) {
			for world := range testscale.Rounds(6, 15) {
				all = append(all, anything(rand.New(rand.NewPCG(uint64(world), 5)), fmt.Sprint("w", world, "-"))...)
			}
			return all
		},
		// conversation TRACE SESSION TURNS
		"conversation": func(_ *harness, a *args) []store.Batch {
			return conversation(a.word(), a.word(), int(a.int()))
		},
		// scattered SEED OWNERS EACH VERSIONS traced
		"scattered": func(_ *harness, a *args) []store.Batch {
			return scattered(uint64(a.int()), int(a.int()), int(a.int()), int(a.int()), len(a.left) > 0)
		},
	}
}

// sessionChange reports of a session: ID TIMES column=value@time fork=session/message@time
func (h *harness) sessionChange(a *args) store.Batch {
	c := store.SessionChange{ID: a.word()}
	c.Start, c.End = a.times()
	columns := map[string]**store.Value{"title": &c.Title, "mode": &c.Mode, "workspace": &c.WorkspaceID,
		"root": &c.WorkspaceRoot, "model": &c.Model, "permissions": &c.Permissions, "agent": &c.Agent,
		"parent": &c.ParentID, "parent_message": &c.ParentMessageID, "archived": &c.Archived}
	a.pairs(func(key, value string) {
		v := h.value(value)
		if column, ok := columns[key]; ok {
			*column = v
		} else if key == "fork" {
			from, message, _ := strings.Cut(v.Text, "/")
			c.Fork = &store.Fork{From: from, Message: message, At: v.At / 1e6}
		} else {
			c.Metadata = map[string]store.Value{key: *v}
		}
	})
	return store.Batch{Sessions: []store.SessionChange{c}}
}

// observation is one: TRACE SOURCE TIMES, {script}, and words: opens of=session/rank below=span asks=calls orphan=call
// evaluates=response/span/session. A trace "-" is none.
func (h *harness) observation(a *args) store.Batch {
	trace, source := strings.TrimPrefix(a.word(), "-"), a.word()
	from, to := a.span()
	var s script
	if n := len(a.left); n > 0 && strings.HasPrefix(a.left[n-1], "{") {
		h.check(json.Unmarshal([]byte(a.left[n-1]), &s))
		a.left = a.left[:n-1]
	}
	return observed(trace, source, from, to, s, func(o *store.Observation) {
		a.pairs(func(key, value string) {
			switch key {
			case "opens":
				o.Opens = true
			case "of":
				id, rank, _ := strings.Cut(value, "/")
				o.Session = id
				o.Rank, _ = strconv.Atoi(rank)
			case "below":
				o.ParentSpanID = value
			case "asks":
				o.Calls = strings.Split(value, ",")
			case "orphan":
				o.Call = value
			case "evaluates": // RESPONSE/SPAN/SESSION, of which some are empty
				about := strings.Split(value, "/")
				o.Evaluates(about[0], o.TraceID, about[1], about[2])
			default:
				h.Fatalf("unknown word %q", key)
			}
		})
	})
}

// actions are the words of what a user does in a story that is in order.
var actions = map[string]func(h *harness, s Store, a *args) error{
	// title ID TITLE TIME
	"title": func(h *harness, s Store, a *args) error {
		return s.SetTitle(h.Context(), a.word(), a.word(), time.UnixMilli(epoch+a.int()))
	},
	// archive ID TIME back
	"archive": func(h *harness, s Store, a *args) error {
		return s.Archive(h.Context(), a.word(), len(a.left) < 2, time.UnixMilli(epoch+a.int()))
	},
	// fork FROM MESSAGE TIME TITLE {metadata}: "-" is no message, and the usual title
	"fork": func(h *harness, s Store, a *args) (err error) {
		o := store.ForkOptions{From: a.word(), Message: strings.TrimPrefix(a.word(), "-"),
			Now: time.UnixMilli(epoch + a.int()), Title: strings.TrimPrefix(a.word(), "-")}
		a.json(&o.Metadata)
		id, err := s.Fork(h.Context(), o)
		if err == nil {
			h.forked = id
		}
		return err
	},
	// rewind ID TO TIME
	"rewind": func(h *harness, s Store, a *args) (err error) {
		h.rewound, err = s.Rewind(h.Context(), a.word(), a.word(), time.UnixMilli(epoch+a.int()))
		return err
	},
	"unrewind": func(h *harness, s Store, a *args) (err error) {
		h.rewound, err = s.Unrewind(h.Context(), a.word())
		return err
	},
	"delete": func(h *harness, s Store, a *args) error { return s.Delete(h.Context(), a.word()) },
	// annotate {Annotation}: a tag of s1, and one with what is otherwise in the other
	"annotate": func(h *harness, s Store, a *args) error {
		good := annotation("tag", "good", 20, nil)
		other := good
		a.json(&other)
		return s.Annotate(h.Context(), []store.Annotation{good, other})
	},
	"keep": func(h *harness, s Store, _ *args) error {
		h.kept = h.dump(s)
		return nil
	},
	"export": func(h *harness, s Store, a *args) error {
		h.exported = &store.Imported{Transcript: Transcript(h, s, a.word())}
		return s.Origin(h.Context(), h.exported)
	},
	"restore": func(h *harness, s Store, _ *args) error {
		_, err := s.Import(h.Context(), h.exported)
		return err
	},
}
