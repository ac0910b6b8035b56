package storetest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
)

// read compares what is read with what it has to be.
func (h *harness) read(s Store, c check) {
	h.Helper()
	verb, rest, _ := strings.Cut(c.read, " ")
	read, ok := checks[verb]
	if !ok {
		h.Fatalf("unknown check %q", c.read)
	}
	got := relative(read(h, s, h.args(rest)))
	h.equal(c.read, strings.Split(strings.ReplaceAll(got+"\n", " \n", "\n"), "\n"), strings.Split(c.want+"\n", "\n"))
}

// columns are some columns of a row.
func (h *harness) columns(row []byte, names []string) string {
	h.Helper()
	var all map[string]any
	d := json.NewDecoder(strings.NewReader(string(row)))
	d.UseNumber()
	h.check(d.Decode(&all))
	var values []string
	for _, name := range names {
		v, ok := all[name]
		if !ok {
			h.Fatalf("no column %s in %s", name, row)
		}
		if v == nil {
			v = "null"
		}
		values = append(values, fmt.Sprint(v))
	}
	return strings.Join(values, ", ")
}

func lines[T any](h *harness, all []T, err error, line func(*T) string) string {
	h.Helper()
	h.check(err)
	var text []string
	for i := range all {
		text = append(text, line(&all[i]))
	}
	return strings.Join(text, "\n")
}

// failures are what errors are called.
var failures = map[string]error{
	"not found": store.ErrNotFound, "ambiguous": store.ErrAmbiguous, "hidden": store.ErrHidden,
	"not the user's": store.ErrNotUsers, "no rewind": store.ErrNoRewind,
}

// failure is what an error is called, which has a name.
func (h *harness) failure(err error) string {
	h.Helper()
	name := failureName(err)
	if name == "error" {
		h.check(err)
	}
	return name
}

func failureName(err error) string {
	for name, of := range failures {
		if errors.Is(err, of) {
			return name
		}
	}
	if err != nil {
		return "error"
	}
	return ""
}

// hits are what a search finds. Every mark is around what was searched for.
func (h *harness) hits(s Store, a *args, line func(*store.Hit) string) string {
	h.Helper()
	var q store.SearchQuery
	a.json(&q)
	var found []string
	for hit, err := range s.Search(h.Context(), q) {
		if err != nil {
			_, reason, _ := strings.Cut(err.Error(), `", `)
			return reason
		}
		found = append(found, line(&hit))
		for _, m := range hit.Marks {
			if got := hit.Context[m[0]:m[1]]; !q.Regexp && len([]rune(got)) != len([]rune(q.Text)) {
				h.Errorf("%q: a mark is %q", q.Text, got)
			}
		}
	}
	return strings.Join(found, ", ")
}

// priceOf has prices of three models. Of small, only an unknown number of requests is charged as short ones.
func priceOf(m session.Model) *price.Rate {
	return map[string]*price.Rate{
		"small": {Base: [5]float64{1, 1, 1, 1, 1}, Tiers: []price.Tier{{Above: -1, Rates: [5]float64{9, 9, 9, 9, 9}}}},
		"dear":  {Base: [5]float64{10}}, "cheap": {Base: [5]float64{1}},
	}[m.ModelID]
}

// unpriced are the models without a price.
func unpriced(models []string) string {
	if models == nil {
		return ""
	}
	return fmt.Sprintf("\nunpriced: %q", models)
}

// checks are the words that checks begin with.
var checks map[string]func(h *harness, s Store, a *args) string

func init() {
	checks = map[string]func(h *harness, s Store, a *args) string{
		"ids": func(h *harness, s Store, _ *args) string { return strings.Join(h.ids(s), " ") },
		// Of each session its tokens and what its visible messages contain.
		"sessions": func(h *harness, s Store, _ *args) string {
			return lines(h, h.ids(s), nil, func(id *string) string {
				t := Transcript(h, s, *id)
				return fmt.Sprintf("%s %d: %s", *id, t.Session.TotalTokens, strings.Join(texts(t), ", "))
			})
		},
		"count":   func(h *harness, s Store, _ *args) string { return fmt.Sprint(len(h.ids(s))) },
		"refused": func(h *harness, _ Store, _ *args) string { return fmt.Sprint(h.result.Refused) },
		"pending": func(h *harness, _ Store, _ *args) string { return fmt.Sprint(h.result.Pending) },
		"imported": func(h *harness, _ Store, a *args) string {
			raw, err := json.Marshal(h.imports)
			h.check(err)
			return h.columns(raw, a.left)
		},
		"unstored": func(h *harness, _ Store, _ *args) string {
			var where []string
			for _, refusal := range h.imports.Refused {
				where = append(where, refusal.Where)
			}
			return strings.Join(where, ", ")
		},
		"tokens": func(h *harness, s Store, a *args) string {
			return fmt.Sprint(Transcript(h, s, a.word()).Session.TotalTokens)
		},
		"visible": func(h *harness, s Store, a *args) string {
			return strings.Join(visible(Transcript(h, s, a.word())), " ")
		},
		// What the last rewind, or its undoing, changed.
		"rewound": func(h *harness, _ Store, _ *args) string {
			return h.rewound.To + ": " + strings.Join(h.rewound.Messages, " ")
		},
		"texts": func(h *harness, s Store, a *args) string {
			return strings.Join(texts(Transcript(h, s, a.word())), ", ")
		},
		"messages": func(h *harness, s Store, a *args) string {
			return lines(h, Transcript(h, s, a.word()).Messages, nil, func(m *session.MessageAndParts) string {
				return m.Message.ID + ": " + strings.Join(layout(*m), " ")
			})
		},
		"row": func(h *harness, s Store, a *args) string {
			row := Transcript(h, s, a.word()).Session
			return h.columns(row.AppendJSON(nil), a.left)
		},
		"message": func(h *harness, s Store, a *args) string {
			m := h.message(Transcript(h, s, a.word()), a.word()).Message
			return h.columns(m.AppendJSON(nil), a.left)
		},
		"part": func(h *harness, s Store, a *args) string {
			m := h.message(Transcript(h, s, a.word()), a.word())
			i, _ := strconv.Atoi(a.word())
			return h.columns(m.Parts[i].AppendJSON(nil), a.left)
		},
		"decisions": func(h *harness, s Store, a *args) string {
			all, err := s.Decisions(h.Context(), a.word())
			return lines(h, all, err, func(d *store.Decision) string { raw, _ := json.Marshal(d); return string(raw) })
		},
		"annotations": func(h *harness, s Store, a *args) string { return strings.Join(h.shown(s, a.word()), "\n") },
		"score": func(h *harness, s Store, a *args) string {
			all, err := s.Annotations(h.Context(), a.word())
			return lines(h, all, err, func(n *store.Annotation) string {
				return strings.TrimSpace(fmt.Sprintf("%g on %s", *n.Value, n.MessageID))
			})
		},
		"targets": func(h *harness, s Store, a *args) string {
			all, err := s.Annotations(h.Context(), a.word())
			return lines(h, all, err, func(n *store.Annotation) string {
				id := n.ID
				if n.Identify(); n.ID != id {
					return "it has not the id of its target"
				}
				return fmt.Sprintf("%s %s on %q", n.Kind, n.Name, n.MessageID)
			})
		},
		"spans": func(h *harness, s Store, a *args) string {
			all, err := s.SpanRefs(h.Context(), a.word())
			return lines(h, all, err, func(l *store.SpanRef) string {
				stats, _ := json.Marshal(l.TurnStats)
				return fmt.Sprintf("%s %s %q %q %s %s %d..%d %t %s", l.TraceID, l.SpanID, l.ParentSpanID, l.MessageID,
					l.Kind, l.Dialect, l.StartNano/1e6, l.EndNano/1e6, l.Error, stats)
			})
		},
		"prompt": func(h *harness, s Store, a *args) string {
			b, err := s.Blob(h.Context(), store.BlobSystemPrompt, a.word())
			h.check(err)
			return fmt.Sprint(b.Body, " ", b.Exact)
		},
		// Which prompts and catalogs are there, of some digests.
		"blobs": func(h *harness, s Store, a *args) string {
			var found []string
			for _, digest := range a.left {
				for kind := range store.BlobTables {
					if _, err := s.Blob(h.Context(), kind, digest); err == nil {
						found = append(found, digest)
					} else if !errors.Is(err, store.ErrNotFound) {
						h.Error(err)
					}
				}
			}
			return strings.Join(found, " ")
		},
		// What is deleted that nobody names and is older than a time, or would be if there are more words.
		"garbage": func(h *harness, s Store, a *args) string {
			g, err := s.Collect(h.Context(), time.UnixMilli(epoch+a.int()), len(a.left) > 0)
			h.check(err)
			raw, _ := json.Marshal(g)
			return string(raw)
		},
		"failed": func(h *harness, _ Store, _ *args) string {
			return failureName(h.failed)
		},
		"kept": func(h *harness, s Store, _ *args) string { return gocmp.Diff(h.kept, h.dump(s)) },
		"exported": func(h *harness, _ Store, _ *args) string {
			in := h.exported
			return fmt.Sprint(len(in.SpanRefs), in.Traces, len(in.RequestedIndexes))
		},
		"resolve": func(h *harness, s Store, a *args) string {
			id, err := s.Resolve(h.Context(), a.word())
			return cmp.Or(id, h.failure(err))
		},
		"windows": func(h *harness, s Store, a *args) string { return strings.Join(h.windows(s, a.word()), " ") },
		// The sessions of a SessionQuery.
		"list": func(h *harness, s Store, a *args) string {
			var q store.SessionQuery
			a.json(&q)
			for _, err := range s.Sessions(h.Context(), q) {
				if err != nil {
					return "error"
				}
			}
			return strings.Join(ids(List(h, s, q)), " ")
		},
		// The same in pages of two, each by a cursor.
		"pages": func(h *harness, s Store, a *args) string {
			var q store.SessionQuery
			a.json(&q)
			q.Limit = 2
			var all []string
			for page := List(h, s, q); len(page) > 0; page = List(h, s, q) {
				all = append(all, ids(page)...)
				last := page[len(page)-1]
				q.Before = &store.Cursor{UpdatedAt: last.UpdatedAt, ID: last.ID}
			}
			return strings.Join(all, " ")
		},
		// The sessions of a SessionFilter, or of a filter of scores. Stats count as many.
		"filter": func(h *harness, s Store, a *args) string {
			q := everything
			if text := strings.Join(a.left, " "); strings.HasPrefix(text, "{") {
				a.json(&q.SessionFilter)
			} else {
				f, err := store.ParseScoreFilter(text)
				h.check(err)
				q.Scores = []store.ScoreFilter{f}
			}
			all := ids(List(h, s, q))
			stats, err := s.Stats(h.Context(), store.StatsQuery{Sessions: q.SessionFilter})
			h.check(err)
			h.equal("sessions counted: "+a.line, stats.Total.Sessions, int64(len(all)))
			return strings.Join(all, " ")
		},
		// The hits of a SearchQuery: part, field and count of each, or all that hits have.
		"search": func(h *harness, s Store, a *args) string {
			return h.hits(s, a, func(hit *store.Hit) string {
				return fmt.Sprintf("%s %s %d", cmp.Or(hit.PartID, "-"), hit.Field, hit.Matches)
			})
		},
		"hits": func(h *harness, s Store, a *args) string {
			return h.hits(s, a, func(hit *store.Hit) string {
				return fmt.Sprintf("%s %s %s %s %s %s %s %s %d %q %v %d", hit.SessionID, hit.Title, hit.Agent,
					hit.MessageID, cmp.Or(hit.Role, "-"), hit.PartID, hit.Type, hit.Field, hit.Matches, hit.Context,
					hit.Marks, hit.CreatedAt)
			})
		},
		// The stats of a StatsQuery: the total and the groups, or these columns of them.
		"stats": func(h *harness, s Store, a *args) string {
			var q store.StatsQuery
			h.check(json.Unmarshal([]byte(absolute(a.word())), &q))
			q.Price = priceOf
			stats, err := s.Stats(h.Context(), q)
			return lines(h, slices.Concat([]store.StatsGroup{stats.Total}, stats.Groups), err,
				func(g *store.StatsGroup) string {
					raw, _ := json.Marshal(g)
					if len(a.left) > 0 {
						return g.Key + ": " + h.columns(raw, a.left)
					}
					return string(raw)
				}) + unpriced(stats.UnpricedModels)
		},
		// What each of some sessions used.
		"spent": func(h *harness, s Store, a *args) string {
			spent, err := s.Spent(h.Context(), a.left, priceOf)
			return lines(h, a.left, err, func(id *string) string {
				of, ok := spent[*id]
				raw, _ := json.Marshal(of)
				return fmt.Sprint(*id, " ", ok, " ", string(raw))
			})
		},
		"notices": func(h *harness, s Store, a *args) string {
			some, err := s.MayHaveNotices(h.Context(), a.left)
			h.check(err)
			return strings.Join(slices.Sorted(maps.Keys(some)), " ")
		},
		"missing": func(h *harness, s Store, a *args) string {
			all, err := s.Missing(h.Context(), a.left)
			return lines(h, a.left, err, func(id *string) string {
				raw, _ := json.Marshal(all[*id])
				return *id + " " + string(raw)
			})
		},
		"openings": func(h *harness, s Store, a *args) string {
			all, err := s.Openings(h.Context(), a.left)
			h.check(err)
			raw, _ := json.Marshal(all)
			return string(raw)
		},
		"since": func(h *harness, s Store, a *args) string {
			n := 0
			for _, err := range s.Sessions(h.Context(), store.UpdatedSince(time.UnixMilli(epoch+a.int()))) {
				h.check(err)
				n++
			}
			return fmt.Sprint(n)
		},
		// What an ExcerptQuery of a session reads: messages with their parts; decisions; spans; the count of calls.
		"excerpt": func(h *harness, s Store, a *args) string {
			id := a.word()
			var q store.ExcerptQuery
			a.json(&q)
			e, err := s.Excerpt(h.Context(), id, q)
			if err != nil {
				return h.failure(err)
			}
			return excerptText(e)
		},
		// The sessions that are stale before a time, archived ones alone if that is the second word.
		"stale": func(h *harness, s Store, a *args) string {
			sessions := s.Sessions(h.Context(), store.UpdatedSince(time.Time{}))
			all, err := store.Stale(sessions, time.UnixMilli(a.int()), len(a.left) > 0)
			h.check(err)
			return strings.Join(ids(all), " ")
		},
	}
}

func excerptText(e *store.Excerpt) string {
	var text strings.Builder
	for _, m := range e.Messages {
		text.WriteString(m.Message.ID)
		for _, p := range m.Parts {
			text.WriteString("+" + p.ID)
		}
		text.WriteString(" ")
	}
	for _, d := range e.Decisions {
		text.WriteString(d.ID + " ")
	}
	for _, l := range e.Spans {
		text.WriteString(l.SpanID + " ")
	}
	return text.String() + fmt.Sprint(e.ToolCalls)
}
