package storetest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
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
	a := h.args(rest)
	got := relative(h.text(read(h, s, a), a))
	h.equal(c.read, strings.Split(strings.ReplaceAll(got+"\n", " \n", "\n"), "\n"), strings.Split(c.want+"\n", "\n"))
}

// text is how a story has what was read: an error by its name, texts and the ids of sessions in a line, other lists with
// a line for each element. Anything else is JSON, or those of its columns that are left in the line.
func (h *harness) text(v any, a *args) string {
	h.Helper()
	switch v := v.(type) {
	case error:
		return h.failure(v)
	case string:
		return v
	case []string:
		return strings.Join(v, " ")
	case []session.Session:
		return strings.Join(ids(v), " ")
	}
	var lines []string
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice {
		for i := range list.Len() {
			lines = append(lines, h.text(list.Index(i).Interface(), a))
		}
		return strings.Join(lines, "\n")
	}
	raw, err := json.Marshal(v)
	h.check(err)
	if len(a.left) == 0 {
		return string(raw)
	}
	var all map[string]any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	h.check(d.Decode(&all))
	var values []string
	for _, name := range a.left {
		switch v, ok := all[name]; {
		case !ok: // an empty text
			values = append(values, "")
		case v == nil:
			values = append(values, "null")
		default:
			values = append(values, fmt.Sprint(v))
		}
	}
	return strings.Join(values, ", ")
}

// result is what a method returned: a value, or an error.
func result[T any](v T, err error) any {
	if err != nil {
		return err
	}
	return v
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
func (h *harness) hits(s Store, a *args) (found []store.Hit, _ error) {
	h.Helper()
	var q store.SearchQuery
	a.json(&q)
	for hit, err := range s.Search(h.Context(), q) {
		if err != nil {
			return nil, err
		}
		found = append(found, hit)
		for _, m := range hit.Marks {
			if got := hit.Context[m[0]:m[1]]; !q.Regexp && len([]rune(got)) != len([]rune(q.Text)) {
				h.Errorf("%q: a mark is %q", q.Text, got)
			}
		}
	}
	return found, nil
}

// priceOf has prices of three models. Of small, only an unknown number of requests is charged as short ones.
func priceOf(m session.Model) *price.Rate {
	return map[string]*price.Rate{
		"small": {Base: [5]float64{1, 1, 1, 1, 1}, Tiers: []price.Tier{{Above: -1, Rates: [5]float64{9, 9, 9, 9, 9}}}},
		"dear":  {Base: [5]float64{10}}, "cheap": {Base: [5]float64{1}},
	}[m.ModelID]
}

// checks are the words that checks begin with. They return what [harness.text] writes.
var checks map[string]func(h *harness, s Store, a *args) any

func init() {
	checks = map[string]func(h *harness, s Store, a *args) any{
		"ids":   func(h *harness, s Store, _ *args) any { return h.ids(s) },
		"count": func(h *harness, s Store, _ *args) any { return len(h.ids(s)) },
		// Of each session its tokens and what its visible messages contain.
		"sessions": func(h *harness, s Store, _ *args) any {
			var all []string
			for _, row := range Sessions(h, s) {
				all = append(all, fmt.Sprintf("%s %d: %s", row.ID, row.TotalTokens,
					strings.Join(texts(Transcript(h, s, row.ID)), ", ")))
			}
			return strings.Join(all, "\n")
		},
		// The results of the last batch, of the last import, and of the last rewind or its undoing.
		"result":   func(h *harness, _ Store, _ *args) any { return h.result },
		"imported": func(h *harness, _ Store, _ *args) any { return h.imports },
		"rewound":  func(h *harness, _ Store, _ *args) any { return h.rewound },
		"unstored": func(h *harness, _ Store, _ *args) any {
			var where []string
			for _, refusal := range h.imports.Refused {
				where = append(where, refusal.Where)
			}
			return strings.Join(where, ", ")
		},
		"visible": func(h *harness, s Store, a *args) any { return visible(Transcript(h, s, a.word())) },
		"texts": func(h *harness, s Store, a *args) any {
			return strings.Join(texts(Transcript(h, s, a.word())), ", ")
		},
		// The indexes and ids of the parts of each message.
		"messages": func(h *harness, s Store, a *args) any {
			var all []string
			for _, m := range Transcript(h, s, a.word()).Messages {
				line := m.Message.ID + ":"
				for _, p := range m.Parts {
					line += fmt.Sprintf(" %d:%s", p.Index, p.ID)
				}
				all = append(all, line)
			}
			return strings.Join(all, "\n")
		},
		"row": func(h *harness, s Store, a *args) any { return result(s.Session(h.Context(), a.word())) },
		"message": func(h *harness, s Store, a *args) any {
			return h.message(Transcript(h, s, a.word()), a.word()).Message
		},
		"part": func(h *harness, s Store, a *args) any {
			return h.message(Transcript(h, s, a.word()), a.word()).Parts[a.int()]
		},
		"decisions": func(h *harness, s Store, a *args) any { return result(s.Decisions(h.Context(), a.word())) },
		"annotations": func(h *harness, s Store, a *args) any {
			all, err := s.Annotations(h.Context(), a.word())
			return result(slices.DeleteFunc(all, func(n store.Annotation) bool { return n.DeletedAt != nil }), err)
		},
		"spans": func(h *harness, s Store, a *args) any { return result(s.SpanRefs(h.Context(), a.word())) },
		"prompt": func(h *harness, s Store, a *args) any {
			return result(s.Blob(h.Context(), store.BlobSystemPrompt, a.word()))
		},
		"catalog": func(h *harness, s Store, a *args) any {
			return result(s.Blob(h.Context(), store.BlobToolCatalog, a.word()))
		},
		// What is deleted that nobody names and is older than a time, or would be if there are more words.
		"garbage": func(h *harness, s Store, a *args) any {
			return result(s.Collect(h.Context(), time.UnixMilli(epoch+a.int()), len(a.rest()) > 0))
		},
		"failed": func(h *harness, _ Store, _ *args) any { return failureName(h.failed) },
		// What differs from the lines of the session that were looked at first.
		"same": func(h *harness, s Store, a *args) any {
			lines := encoded(h, Transcript(h, s, a.word()))
			h.first = cmp.Or(h.first, lines)
			return gocmp.Diff(h.first, lines)
		},
		"kept": func(h *harness, s Store, _ *args) any { return gocmp.Diff(h.kept, h.dump(s)) },
		"exported": func(h *harness, _ Store, _ *args) any {
			return fmt.Sprint(len(h.exported.SpanRefs), h.exported.Traces, len(h.exported.RequestedIndexes))
		},
		"resolve": func(h *harness, s Store, a *args) any { return result(s.Resolve(h.Context(), a.word())) },
		"windows": func(h *harness, s Store, a *args) any { return h.windows(s, a.word()) },
		// The sessions of a SessionQuery.
		"list": func(h *harness, s Store, a *args) any {
			var q store.SessionQuery
			a.json(&q)
			for _, err := range s.Sessions(h.Context(), q) {
				if err != nil {
					return failureName(err)
				}
			}
			return List(h, s, q)
		},
		// The same in pages of two, each by a cursor.
		"pages": func(h *harness, s Store, a *args) any {
			var q store.SessionQuery
			a.json(&q)
			q.Limit = 2
			var all []session.Session
			for page := List(h, s, q); len(page) > 0; page = List(h, s, q) {
				all = append(all, page...)
				last := page[len(page)-1]
				q.Before = &store.Cursor{UpdatedAt: last.UpdatedAt, ID: last.ID}
			}
			return all
		},
		// The sessions of a SessionFilter, or of a filter of scores. Stats count as many.
		"filter": func(h *harness, s Store, a *args) any {
			q := everything
			if text := strings.Join(a.left, " "); strings.HasPrefix(text, "{") {
				a.json(&q.SessionFilter)
			} else {
				f, err := store.ParseScoreFilter(text)
				h.check(err)
				q.Scores = []store.ScoreFilter{f}
			}
			all := List(h, s, q)
			stats, err := s.Stats(h.Context(), store.StatsQuery{Sessions: q.SessionFilter})
			h.check(err)
			h.equal("sessions counted: "+a.line, stats.Total.Sessions, int64(len(all)))
			return all
		},
		// The ids that a Retention deletes 31 days after epoch.
		"retain": func(h *harness, s Store, a *args) any {
			var p store.Retention
			a.json(&p)
			return h.retain(s, p)
		},
		"source": func(h *harness, s Store, a *args) any { return result(s.ImportSource(h.Context(), a.word())) },
		// The hits of a SearchQuery: part, field and count of each, or all that hits have.
		"search": func(h *harness, s Store, a *args) any {
			found, err := h.hits(s, a)
			if err != nil {
				_, reason, _ := strings.Cut(err.Error(), ": ")
				return reason
			}
			var all []string
			for _, hit := range found {
				all = append(all, fmt.Sprintf("%s %s %d", cmp.Or(hit.PartID, "-"), hit.Field, hit.Matches))
			}
			return strings.Join(all, ", ")
		},
		"hits": func(h *harness, s Store, a *args) any { return result(h.hits(s, a)) },
		// The stats of a StatsQuery: the total and the groups, or these columns of them.
		"stats": func(h *harness, s Store, a *args) any {
			var q store.StatsQuery
			h.check(json.Unmarshal([]byte(absolute(a.word())), &q))
			q.Price = priceOf
			stats, err := s.Stats(h.Context(), q)
			h.check(err)
			var all []string
			for _, g := range slices.Concat([]store.StatsGroup{stats.Total}, stats.Groups) {
				text := h.text(g, a)
				if len(a.left) > 0 {
					text = g.Key + ": " + text
				}
				all = append(all, text)
			}
			if stats.UnpricedModels != nil {
				all = append(all, fmt.Sprintf("unpriced: %q", stats.UnpricedModels))
			}
			return strings.Join(all, "\n")
		},
		// What each of some sessions used.
		"spent": func(h *harness, s Store, a *args) any { return result(s.Spent(h.Context(), a.rest(), priceOf)) },
		"notices": func(h *harness, s Store, a *args) any {
			some, err := s.MayHaveNotices(h.Context(), a.rest())
			return result(slices.Sorted(maps.Keys(some)), err)
		},
		"missing":  func(h *harness, s Store, a *args) any { return result(s.Missing(h.Context(), a.rest())) },
		"openings": func(h *harness, s Store, a *args) any { return result(s.Openings(h.Context(), a.rest())) },
		// What an ExcerptQuery of a session reads: messages with their parts; decisions; spans; the count of calls.
		"excerpt": func(h *harness, s Store, a *args) any {
			id := a.word()
			var q store.ExcerptQuery
			a.json(&q)
			e, err := s.Excerpt(h.Context(), id, q)
			if err != nil {
				return err
			}
			var all []string
			for _, m := range e.Messages {
				all = append(all, m.Message.ID)
				for _, p := range m.Parts {
					all[len(all)-1] += "+" + p.ID
				}
			}
			for _, d := range e.Decisions {
				all = append(all, d.ID)
			}
			for _, l := range e.Spans {
				all = append(all, l.SpanID)
			}
			return append(all, strconv.Itoa(e.ToolCalls))
		},
		// The sessions that are stale before a time, archived ones alone if that is the second word.
		"stale": func(h *harness, s Store, a *args) any {
			sessions := s.Sessions(h.Context(), store.UpdatedSince(time.Time{}))
			return result(store.Stale(sessions, time.UnixMilli(a.int()), len(a.rest()) > 0))
		},
	}
}
