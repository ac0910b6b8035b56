package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/replay"
	"github.com/agenttrace/agenttrace/session/store"
)

// sessionHead is a document without its turns.
type sessionHead struct {
	Session        document.Session `json:"session"`
	Status         document.Status  `json:"status"`
	Totals         document.Totals  `json:"totals"`
	Notices        []session.Notice `json:"notices,omitempty"`
	Quality        *session.Quality `json:"quality,omitempty"`
	UnpricedModels []string         `json:"unpriced_models,omitempty"`
	Children       []document.Child `json:"children,omitempty"`
	Traces         []string         `json:"traces,omitempty"`
}

func headOf(doc *document.Document) sessionHead {
	return sessionHead{
		doc.Session, doc.Status, doc.Totals, doc.Notices, doc.Quality, doc.UnpricedModels, doc.Children, doc.Traces,
	}
}

type documentParams struct {
	sessionPath
	From, To int
}

func (a *api) read(ctx context.Context, p documentParams) (*document.Document, error) {
	if p.From == 0 && p.To == 0 {
		return a.Sessions.LoadAll(ctx, p.ID)
	}
	o, err := a.Sessions.LoadOutline(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	from, to := max(1, p.From), cmp.Or(p.To, len(o.Turns))
	switch {
	case from > len(o.Turns):
		return nil, noTurn(p.ID, "from", from, len(o.Turns))
	case to > len(o.Turns):
		return nil, noTurn(p.ID, "to", to, len(o.Turns))
	case to < from:
		return nil, Invalidf("to", "give a turn that is not before from", "to is %d and from is %d", to, from)
	}
	if err := o.Load(ctx, from, to); err != nil {
		return nil, err
	}
	return o.Document().Between(from, to), nil
}

// noTurn is the error for a turn that a session does not have.
func noTurn(id string, parameter string, n, turns int) error {
	none := &document.NoTurnError{SessionID: id, Number: n, Turns: turns}
	what, remedy, _ := strings.Cut(none.Error()+"; read the session for its turns", "; ")
	return NotFoundf(parameter, remedy, "%s", what)
}

// turnPath names a turn.
type turnPath struct {
	sessionPath
	N int
}

func (a *api) turn(ctx context.Context, p turnPath) (*document.Document, error) {
	doc, err := a.Sessions.LoadTurns(ctx, p.ID, p.N, p.N)
	if none, ok := errors.AsType[*document.NoTurnError](err); ok {
		err = noTurn(p.ID, "n", none.Number, none.Turns)
	}
	return doc, err
}

type replayParams struct {
	turnPath
	Model, Effort string
}

func (a *api) replay(ctx context.Context, p replayParams) (*replay.Bundle, error) {
	in, err := document.Collect(ctx, a.Sessions, p.ID)
	if err != nil {
		return nil, err
	}
	doc := document.Build(in)
	if doc.Turn(p.N) == nil {
		return nil, noTurn(p.ID, "n", p.N, len(doc.Turns))
	}
	return replay.ForTurn(doc, in.Transcript, p.N, p.Model, p.Effort)
}

// wholePart is a part with where it is, and its row.
type wholePart struct {
	SessionID string `json:"session_id"`
	// Turn is 0 of a message that waits in the queue.
	Turn      int           `json:"turn"`
	MessageID string        `json:"message_id"`
	Part      document.Part `json:"part"`
	// Row has the part as it is stored.
	Row session.Part `json:"row"`
}

// partPath names a part.
type partPath struct {
	sessionPath
	Message, Part string
}

func (a *api) part(ctx context.Context, p partPath) (*wholePart, error) {
	_, t, _, part, err := a.findPart(ctx, p)
	row, rowErr := a.partRow(ctx, p)
	if err := cmp.Or(rowErr, err); err != nil {
		return nil, err
	}
	whole := wholePart{SessionID: p.ID, MessageID: p.Message, Part: *part, Row: *row}
	if t != nil {
		whole.Turn = t.Number
	}
	return &whole, nil
}

// findPart reads a part, with its session, of which one turn is loaded, its turn, nil of a message that waits in the
// queue, and its message.
func (a *Backend) findPart(ctx context.Context, p partPath) (doc *document.Document, t *document.Turn,
	m *document.Message, part *document.Part, err error) {
	o, err := a.Sessions.LoadOutline(ctx, p.ID)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	n := o.TurnOf(p.Message)
	if n > 0 {
		err = o.Load(ctx, n, n)
	}
	if err != nil {
		return nil, nil, nil, nil, err
	}
	doc = o.Document()
	of := doc.Queued
	if t = doc.Turn(n); t != nil {
		of = t.Messages
	}
	if m, part = document.FindPart(of, p.Message, p.Part); part == nil {
		err = noPart(p)
	}
	return doc, t, m, part, err
}

// noPart is the error for a part that a message does not have.
func noPart(p partPath) error {
	return NotFoundf("part",
		"read its document for their ids", "session %s has no part %q of a message %q", p.ID, p.Part, p.Message)
}

func (a *Backend) partRow(ctx context.Context, p partPath) (*session.Part, error) {
	e, err := a.Sessions.Excerpt(ctx, p.ID, store.ExcerptQuery{Messages: []string{p.Message}})
	if err != nil {
		return nil, err
	}
	if row := document.PartRow(e.Messages, p.Part); row != nil {
		return row, nil
	}
	return nil, noPart(p)
}

type annotationList struct {
	Annotations []document.Annotation `json:"annotations"`
}

func (a *api) annotations(ctx context.Context, p sessionPath) (annotationList, error) {
	rows, err := a.Sessions.Annotations(ctx, p.ID)
	return annotationList{document.AnnotationsOf(rows)}, err
}

type decisionList struct {
	Decisions []document.Decision `json:"decisions"`
}

func (a *api) decisions(ctx context.Context, p sessionPath) (decisionList, error) {
	all, err := a.Sessions.Decisions(ctx, p.ID)
	return decisionList{append([]document.Decision{}, all...)}, err
}

type spanList struct {
	Spans []document.Span `json:"spans"`
}

func spansIn(doc *document.Document) spanList {
	return spanList{append([]document.Span{}, doc.Spans...)}
}

type diffParams struct {
	sessionPath
	B           string `session:""`
	IgnoreUsage bool   `param:"ignore_usage"`
	Exact       bool
}

func (a *api) diff(ctx context.Context, p diffParams) (*document.Diff, error) {
	d, _, _, err := a.Sessions.Compare(ctx, p.ID, p.B, document.CompareOptions{Exact: p.Exact, IgnoreUsage: p.IgnoreUsage})
	return d, err
}

// text is a system prompt or a tool catalog.
type text struct {
	Digest string `json:"digest"`
	// Damaged reports that the text arrived cut or altered: its own digest is another.
	Damaged bool   `json:"damaged,omitempty"`
	Body    string `json:"body"`
}

// digestPath names a system prompt or a tool catalog.
type digestPath struct {
	Digest string
}

// blob reads texts of a kind.
func blob(kind store.BlobKind, what string) func(*api, context.Context, digestPath) (text, error) {
	return func(a *api, ctx context.Context, p digestPath) (text, error) {
		b, err := a.Sessions.Blob(ctx, kind, p.Digest)
		if errors.Is(err, store.ErrNotFound) {
			return text{}, NotFoundf("digest",
				"read a document for the digests", "no %s with the digest %q is stored", what, p.Digest)
		}
		return text{b.Digest, !b.Exact, b.Body}, err
	}
}

// located is where a trace or a span is in sessions.
type located struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id,omitempty"`
	// Kind is what the span was understood as.
	Kind      string `json:"kind,omitempty"`
	SessionID string `json:"session_id"`
	// Turn and MessageID are of what the span describes, of a trace of the first of its spans that describes something.
	// PartID is that of a span.
	Turn      int    `json:"turn,omitempty"`
	MessageID string `json:"message_id,omitempty"`
	PartID    string `json:"part_id,omitempty"`
}

// spanPath names a trace, or a span of it.
type spanPath struct {
	Trace, Span string
}

// locate finds a span of a trace or, with "", the trace. With the error for a span that is not there it returns where
// the trace is.
func (a *Backend) locate(ctx context.Context, p spanPath) (*located, error) {
	trace, span := strings.ToLower(p.Trace), strings.ToLower(p.Span)
	if len(trace) < 8 || strings.Trim(trace, "0123456789abcdef") != "" {
		return nil, Invalidf("trace", "give at least 8 hexadecimal digits", "trace is %q", trace)
	}
	id, err := a.Sessions.Resolve(ctx, trace)
	if err != nil {
		return nil, named("trace", err)
	}
	found := located{SessionID: id}
	// A sub-agent's spans may be of the trace of the session that started it.
	family, err := document.Descendants(ctx, a.Sessions, []string{id})
	if err != nil {
		return nil, err
	}
	for _, member := range family {
		if err := a.locateIn(ctx, member, trace, span, &found); err != nil {
			return nil, named("trace", err)
		}
		if found.TraceID != "" {
			return &found, nil
		}
	}
	missing := NotFoundf("span", "list its spans", "session %s has no span %q of trace %s", id, span, trace)
	if span == "" {
		missing = NotFoundf("trace", "list sessions", "no session has spans of trace %s", trace)
	}
	return &found, missing
}

// locateIn looks for a trace, or for a span of it, in one session.
func (a *Backend) locateIn(ctx context.Context, id, trace, span string, found *located) error {
	spans, err := a.Sessions.Spans(ctx, id)
	if err != nil {
		return err
	}
	for i := range spans {
		s := &spans[i]
		if !strings.HasPrefix(s.TraceID, trace) || span != "" && s.SpanID != span {
			continue
		}
		found.SessionID, found.TraceID = id, s.TraceID
		if span != "" {
			found.SpanID, found.Kind, found.PartID = span, s.Kind, s.PartID
		}
		found.MessageID = cmp.Or(found.MessageID, s.MessageID)
	}
	if found.MessageID == "" {
		return nil
	}
	o, err := a.Sessions.LoadOutline(ctx, id)
	if err == nil {
		found.Turn = o.TurnOf(found.MessageID)
	}
	return err
}

// filterParams select sessions, by the names that filters have everywhere.
type filterParams struct {
	store.SessionFilter
	Status       string
	Tags         []string `param:"tag"`
	Scores       []score  `param:"score"`
	Since, Until instant
}

// filter is the filter of the parameters, where days begin in a zone.
func (p *filterParams) filter(zone *time.Location) store.SessionFilter {
	f := p.SessionFilter
	f.Tags, f.Since, f.Until = p.Tags, p.Since.in(zone), p.Until.in(zone)
	for _, s := range p.Scores {
		f.Scores = append(f.Scores, s.ScoreFilter)
	}
	return f
}

type listParams struct {
	filterParams
	Parent             string `session:""`
	Children, Archived bool
	Sort               string
	Limit              int
	Cursor             cursor
}

// sessionList is a part of the list of sessions.
type sessionList struct {
	Sessions []document.Item `json:"sessions"`
	// Next continues the list, if it goes on.
	Next string `json:"next,omitempty"`
	// UnpricedModels are those that costs could not be estimated of.
	UnpricedModels []string `json:"unpriced_models,omitempty"`
	// Filters explain an empty list.
	Filters []document.Exclusion `json:"filters,omitempty"`
	// Others reports, of an empty list, that archived sessions or those of sub-agents match.
	Others bool `json:"others_match,omitempty"`
}

// query is what the parameters select.
func (p *listParams) query(zone *time.Location) store.SessionQuery {
	sort, _ := store.ParseSessionSort(p.Sort)
	return store.SessionQuery{SessionFilter: p.filter(zone), Sort: sort, Limit: p.Limit + 1, Children: p.Children,
		Archived: p.Archived, Before: p.Cursor.Cursor, ParentID: p.Parent}
}

// rows returns a part of the list of sessions, and the cursor that continues it, "" at its end.
func (a *Backend) rows(ctx context.Context, p *listParams, zone *time.Location) (rows []session.Session, next string,
	err error) {
	list := *p
	list.Limit, list.Cursor = 0, cursor{}
	text, err := json.Marshal(list)
	of := fmt.Sprintf("%.4x", sha256.Sum256(text))
	if err == nil && p.Cursor.Cursor != nil && p.Cursor.of != of {
		err = Invalidf("cursor", "leave it out to begin at the first session",
			"cursor is of a list of other sessions, or in another order")
	}
	if err != nil {
		return nil, "", err
	}
	rows, err = a.Sessions.Select(ctx, p.query(zone), p.Status)
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		next = fmt.Sprintf("%d.%s.%s", rows[p.Limit-1].UpdatedAt, of, rows[p.Limit-1].ID)
	}
	return rows, next, err
}

func (a *api) list(ctx context.Context, p listParams) (list sessionList, err error) {
	rows, next, err := a.rows(ctx, &p, time.UTC)
	if err != nil {
		return list, err
	}
	list.Next = next
	if list.Sessions, list.UnpricedModels, err = a.Sessions.Items(ctx, rows); err != nil {
		return list, err
	}
	if len(rows) == 0 && p.Cursor.Cursor == nil {
		list.Filters, list.Others, err = a.Sessions.Exclusions(ctx, p.query(time.UTC), p.Status)
	}
	return list, err
}

// maxSearch is how long a search looks for a text.
const maxSearch = 20 * time.Second

type searchParams struct {
	filterParams
	Query  string `param:"q"`
	Regexp bool
	Limit  int
}

// searchResult is where a text was found.
type searchResult struct {
	Hits []store.Hit `json:"hits"`
	// More reports that there may be more places than the limit, or that not everything was looked through in time.
	More bool `json:"more"`
	// Filters explain that no session was looked at.
	Filters []document.Exclusion `json:"filters,omitempty"`
}

func (a *api) search(ctx context.Context, p searchParams) (found searchResult, err error) {
	q := store.SearchQuery{Text: p.Query, Regexp: p.Regexp, Agent: p.Agent, Since: p.Since.in(time.UTC)}
	if p.Regexp {
		if _, err := q.Compile(); err != nil {
			return found, Invalidf("q", "use the syntax of RE2", "%v", err)
		}
	}
	f := p.filter(time.UTC)
	f.Agent, f.Since = "", time.Time{} // the search itself selects by these
	var within []string                // nil is all
	if len(f.Set()) > 0 || p.Status != "" {
		if within, err = a.Sessions.SelectIDs(ctx, f, p.Status); err != nil {
			return found, err
		}
		if len(within) == 0 {
			found.Hits = []store.Hit{}
			all := store.SessionQuery{SessionFilter: f, Children: true, Archived: true}
			found.Filters, _, err = a.Sessions.Exclusions(ctx, all, p.Status)
			return found, err
		}
	}
	found.Hits, found.More, err = a.Sessions.Find(ctx, q, within, p.Limit, maxSearch)
	return found, err
}

type statsParams struct {
	filterParams
	By   groups
	Zone zone
}

func (a *api) stats(ctx context.Context, p statsParams) (store.Stats, error) {
	return a.figures(ctx, p, time.UTC)
}

// figures counts what the parameters select, where days that bound it begin in a zone.
func (a *Backend) figures(ctx context.Context, p statsParams, zone *time.Location) (store.Stats, error) {
	q := store.StatsQuery{By: p.By, Since: p.Since.in(zone), Until: p.Until.in(zone),
		Location: p.Zone.Location, Sessions: p.filter(zone), Price: a.Sessions.Price}
	if p.Status != "" {
		var err error
		if q.Sessions.IDs, err = a.Sessions.SelectIDs(ctx, q.Sessions, p.Status); err != nil {
			return store.Stats{}, err
		}
	}
	return a.Sessions.Stats(ctx, q)
}

// serverStatus is what is served.
type serverStatus struct {
	// Version is that of the program, Store the path or address of the store.
	Version string `json:"version,omitempty"`
	Store   string `json:"store"`
	// Changeable reports that sessions can be changed, Events that there are events.
	Changeable bool `json:"changeable"`
	Events     bool `json:"events"`
	// Pending counts the spans and log records that are not attributed to a session yet.
	Pending int64 `json:"pending"`
}

func (a *api) serverStatus(ctx context.Context, _ none) (serverStatus, error) {
	pending, err := a.Sessions.Pending(ctx)
	return serverStatus{a.version, a.Sessions.Name(), a.Change != nil, a.Changes != nil, pending}, err
}

func (a *api) openAPI(context.Context, none) (json.RawMessage, error) {
	return describe(a.version), nil
}

type exportParams struct {
	sessionPath
	Format       string
	Full, Redact bool
}

// mediaTypes are those of files by their extensions.
var mediaTypes = map[string]string{".json": "application/json", ".jsonl": "application/x-ndjson",
	".ndjson": "application/x-ndjson", ".md": "text/markdown; charset=utf-8", ".html": "text/html; charset=utf-8",
	".csv": "text/csv; charset=utf-8", ".pb": "application/x-protobuf"}

func mediaTypeOf(ext string) string { return cmp.Or(mediaTypes[ext], "application/vnd.sqlite3") }

func exportTypes() (all []string) {
	for _, f := range formats.Filter((*formats.Format).InFile) {
		mediaType, _, _ := mime.ParseMediaType(mediaTypeOf(f.Ext)) // it is one of the above
		if !slices.Contains(all, mediaType) {
			all = append(all, mediaType)
		}
	}
	return all
}

// export answers with a session in a format. The file is made before it is sent: an error is answered as one, and the
// ETag is known.
func (a *api) export(w http.ResponseWriter, r *http.Request, p exportParams) error {
	ctx := r.Context()
	f := formats.Named(p.Format, (*formats.Format).InFile)
	if p.Full && !f.Text {
		return Invalidf("full",
			"leave it out, or use a format for people", "full is for transcripts, which %s is not", f.Name)
	}
	source, err := f.Load(ctx, a.Sessions, p.ID, formats.LoadOptions{Full: p.Full})
	if err != nil {
		return err
	}
	if p.Redact {
		secrets, err := redact.New(redact.Config{})
		if err != nil {
			return err
		}
		source.Redact(secrets)
	}
	file, err := exported(ctx, f, source)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{
		"filename": codec.FileName(p.ID) + f.Ext}))
	WriteBody(w, r, http.StatusOK, mediaTypeOf(f.Ext), file)
	return nil
}

func exported(ctx context.Context, f *formats.Format, source *formats.Source) (file []byte, err error) {
	var b bytes.Buffer
	if f.Stream != nil {
		err = f.Stream(&b)(source)
	} else {
		dir, failed := os.MkdirTemp("", "agenttrace-export-*")
		if failed != nil {
			return nil, fmt.Errorf("%w: make room for the export: %w", store.ErrUnavailable, failed)
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "export"+f.Ext)
		if err = f.WriteFile(ctx, path, source); err == nil {
			return os.ReadFile(path)
		}
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok || err == nil || ctx.Err() != nil {
		return b.Bytes(), err
	}
	return nil, NewProblem("not-in-format", http.StatusUnprocessableEntity, "format", "choose another format",
		fmt.Sprintf("the session cannot be written as %s: %v", f.Name, err))
}
