package service

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
)

// The protocol between a [Client] and a [Handler]: a method of [Service] is a POST to Prefix and its name, with its
// arguments as a JSON object. The answer is the JSON of what it returns or, of a method that yields, a line of JSON
// for each, and a last line that reports the end. The two sides are built from the declarations in this file.

// Prefix is where a [Handler] answers. Its last element is the version of the protocol.
const Prefix = "/api/store/v1/"

// method is a method of Service, with arguments Q and result A.
type method[Q, A any] struct {
	name string
	call func(s Service, ctx context.Context, q Q) (A, error)
}

// sequence is a method of Service that yields.
type sequence[Q, A any] struct {
	name string
	call func(s Service, ctx context.Context, q Q) iter.Seq2[A, error]
}

// none is no arguments, or no result.
type none struct{}

// line is a line of the answer of a sequence. The last has End or Problem.
type line[A any] struct {
	Value   *A       `json:"value,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
	End     bool     `json:"end,omitempty"`
}

// Arguments of methods that have several.
type (
	excerptArgs struct {
		ID    string             `json:"id"`
		Query store.ExcerptQuery `json:"query"`
	}
	staleArgs struct {
		Before   time.Time `json:"before"`
		Archived bool      `json:"archived"`
	}
	blobArgs struct {
		Kind   store.BlobKind `json:"kind"`
		Digest string         `json:"digest"`
	}
	spentArgs struct {
		IDs    []string `json:"ids"`
		Prices *rates   `json:"prices,omitempty"`
	}
	statsArgs struct {
		By     []store.StatsBy `json:"by,omitempty"`
		Since  time.Time       `json:"since,omitzero"`
		Until  time.Time       `json:"until,omitzero"`
		Zone   []byte          `json:"zone,omitempty"` // see zoneOf
		Prices *rates          `json:"prices,omitempty"`

		Sessions store.SessionFilter `json:"sessions,omitzero"`
	}
	archiveArgs struct {
		ID       string    `json:"id"`
		Archived bool      `json:"archived"`
		Now      time.Time `json:"now"`
	}
	titleArgs struct {
		ID    string    `json:"id"`
		Title string    `json:"title"`
		Now   time.Time `json:"now"`
	}
	rewindArgs struct {
		ID  string    `json:"id"`
		To  string    `json:"to"`
		Now time.Time `json:"now"`
	}
	collectArgs struct {
		Recent time.Time `json:"recent"`
		DryRun bool      `json:"dry_run"`
	}
)

// Results of methods that have several.
type (
	spentResult struct {
		Spent map[string]store.Spent
		Asked []session.Model
	}
	statsResult struct {
		Stats store.Stats
		Asked []session.Model
	}
	importResult struct {
		Result  store.ImportResult
		Problem *Problem       `json:",omitempty"`
		Refusal *store.Refusal `json:",omitempty"` // of a store.NotWholeError
	}
)

// rates are the prices that a client has, of models that the server has asked for. A function cannot be sent, and a
// list of all prices is large.
type rates struct {
	Models []session.Model `json:"models"`
	Rates  []*price.Rate   `json:"rates"`
}

// lookup is a price of these rates. It reports the models that it was asked for and does not have.
func (r *rates) lookup() (find store.Price, asked func() []session.Model) {
	if r == nil {
		return nil, func() []session.Model { return nil }
	}
	known := make(map[session.Model]*price.Rate, len(r.Models))
	for i, m := range r.Models {
		if i < len(r.Rates) {
			known[m] = r.Rates[i]
		}
	}
	var mu sync.Mutex
	var missing []session.Model
	find = func(m session.Model) *price.Rate {
		m.Variant = ""
		mu.Lock()
		defer mu.Unlock()
		rate, ok := known[m]
		if !ok {
			known[m] = nil
			missing = append(missing, m)
		}
		return rate
	}
	return find, func() []session.Model { return missing }
}

// The methods. A name is that of the method of Service.
var (
	callSessions       = sequence[store.SessionQuery, session.Session]{"Sessions", Service.Sessions}
	callSessionsSince  = method[int64, []session.Session]{"SessionsSince", Service.SessionsSince}
	callResolve        = method[string, string]{"Resolve", Service.Resolve}
	callSession        = method[string, session.Session]{"Session", Service.Session}
	callTranscript     = method[string, *session.Transcript]{"Transcript", Service.Transcript}
	callMayHaveNotices = method[[]string, map[string]bool]{"MayHaveNotices", Service.MayHaveNotices}
	callDecisions      = method[string, []store.Decision]{"Decisions", Service.Decisions}
	callAnnotations    = method[[]string, []store.Annotation]{"Annotations",
		func(s Service, ctx context.Context, ids []string) ([]store.Annotation, error) {
			return s.Annotations(ctx, ids...)
		}}
	callSpans         = method[string, []store.SpanRef]{"Spans", Service.Spans}
	callSpanRefs      = method[string, []store.SpanRef]{"SpanRefs", Service.SpanRefs}
	callObserved      = method[string, int]{"Observed", Service.Observed}
	callSearch        = sequence[store.SearchQuery, store.Hit]{"Search", Service.Search}
	callImportSources = sequence[string, store.ImportSource]{"ImportSources", Service.ImportSources}
	callImportSource  = method[string, store.ImportSource]{"ImportSource", Service.ImportSource}
	callFork          = method[store.ForkOptions, string]{"Fork", Service.Fork}
	callUnrewind      = method[string, store.Rewound]{"Unrewind", Service.Unrewind}

	callName = method[none, string]{"Name",
		func(s Service, _ context.Context, _ none) (string, error) { return s.Name(), nil }}
	// callPosition is no method of Service: it is answered by a Counter.
	callPosition = method[none, Position]{"Position", nil}
	callStale    = method[staleArgs, []session.Session]{"Stale",
		func(s Service, ctx context.Context, q staleArgs) ([]session.Session, error) {
			return s.Stale(ctx, q.Before, q.Archived)
		}}
	callExcerpt = method[excerptArgs, *store.Excerpt]{"Excerpt",
		func(s Service, ctx context.Context, q excerptArgs) (*store.Excerpt, error) {
			return s.Excerpt(ctx, q.ID, q.Query)
		}}
	callPending = method[none, int64]{"Pending",
		func(s Service, ctx context.Context, _ none) (int64, error) { return s.Pending(ctx) }}
	callOrigin = method[string, store.Imported]{"Origin",
		func(s Service, ctx context.Context, id string) (store.Imported, error) {
			in := store.Imported{Transcript: &session.Transcript{Session: session.Session{ID: id}}}
			err := s.Origin(ctx, &in)
			return in, err
		}}
	callSpent = method[spentArgs, spentResult]{"Spent",
		func(s Service, ctx context.Context, q spentArgs) (r spentResult, err error) {
			find, asked := q.Prices.lookup()
			r.Spent, err = s.Spent(ctx, q.IDs, find)
			r.Asked = asked()
			return r, err
		}}
	callStats = method[statsArgs, statsResult]{"Stats",
		func(s Service, ctx context.Context, q statsArgs) (r statsResult, err error) {
			where, err := locationOf(q.Zone)
			if err != nil {
				return r, err
			}
			find, asked := q.Prices.lookup()
			r.Stats, err = s.Stats(ctx, store.StatsQuery{By: q.By, Since: q.Since, Until: q.Until, Sessions: q.Sessions,
				Location: where, Price: find})
			r.Asked = asked()
			return r, err
		}}
	callBlob = method[blobArgs, store.Blob]{"Blob",
		func(s Service, ctx context.Context, q blobArgs) (store.Blob, error) {
			return s.Blob(ctx, q.Kind, q.Digest)
		}}
	callRecordSources = method[[]*store.ImportSource, none]{"RecordSources",
		func(s Service, ctx context.Context, sources []*store.ImportSource) (none, error) {
			return none{}, s.RecordSources(ctx, sources...)
		}}
	callApply     = method[*store.Batch, store.Result]{"Apply", Service.Apply}
	callImportAll = sequence[[]*store.Imported, importResult]{"ImportAll",
		func(s Service, ctx context.Context, sessions []*store.Imported) iter.Seq2[importResult, error] {
			return func(yield func(importResult, error) bool) {
				report := func(_ *store.Imported, r store.ImportResult, err error) bool {
					return yield(resultOf(r, err), nil)
				}
				s.ImportAll(ctx, slices.Values(sessions), report)
			}
		}}
	callRewind = method[rewindArgs, store.Rewound]{"Rewind",
		func(s Service, ctx context.Context, q rewindArgs) (store.Rewound, error) {
			return s.Rewind(ctx, q.ID, q.To, q.Now)
		}}
	callArchive = method[archiveArgs, none]{"Archive",
		func(s Service, ctx context.Context, q archiveArgs) (none, error) {
			return none{}, s.Archive(ctx, q.ID, q.Archived, q.Now)
		}}
	callSetTitle = method[titleArgs, none]{"SetTitle",
		func(s Service, ctx context.Context, q titleArgs) (none, error) {
			return none{}, s.SetTitle(ctx, q.ID, q.Title, q.Now)
		}}
	callAnnotate = method[[]store.Annotation, none]{"Annotate",
		func(s Service, ctx context.Context, annotations []store.Annotation) (none, error) {
			return none{}, s.Annotate(ctx, annotations)
		}}
	callDelete = method[string, none]{"Delete",
		func(s Service, ctx context.Context, id string) (none, error) { return none{}, s.Delete(ctx, id) }}
	callCollect = method[collectArgs, store.Garbage]{"Collect",
		func(s Service, ctx context.Context, q collectArgs) (store.Garbage, error) {
			return s.Collect(ctx, q.Recent, q.DryRun)
		}}
)

// operations are all of them, but for those that need more than a Service.
var operations = []operation{callName, callSessions, callSessionsSince, callStale, callResolve, callSession,
	callTranscript, callExcerpt, callMayHaveNotices, callDecisions, callAnnotations,
	callSpans, callSpanRefs,
	callObserved, callPending, callOrigin, callSpent, callStats, callSearch, callBlob, callImportSources,
	callImportSource, callRecordSources, callImportAll, callFork, callRewind, callUnrewind, callArchive,
	callSetTitle, callAnnotate, callDelete, callCollect}

// resultOf is a result of an import with its error.
func resultOf(r store.ImportResult, err error) importResult {
	out := importResult{Result: r}
	if err != nil {
		out.Problem = ProblemOf(err)
	}
	if whole, ok := errors.AsType[*store.NotWholeError](err); ok {
		out.Refusal = &whole.Refusal
	}
	return out
}
