package sqlstore

import (
	"context"
	"slices"

	"github.com/agenttrace/agenttrace/session/store"
)

// Spans implements [store.Reader].
func (r *Reader) Spans(ctx context.Context, sessionID string) ([]store.SpanRef, error) {
	return own(ctx, r, func(conn Conn) ([]store.SpanRef, error) { return spansOf(conn, sessionID) })
}

// spansOf returns the rows of the view session_spans, with facts_json: the SDK's report of a span, or else the best
// observation of it, or else what was imported with the session. The view is not asked, because a distributed engine
// has the rows of a session and those of a trace on different nodes.
func spansOf(conn Conn, sessionID string) ([]store.SpanRef, error) {
	return mergedSpans(conn, "", "", sessionID)
}

// spansOfMessages returns those of spansOf that belong to messages, which are a JSON list of ids.
func spansOfMessages(conn Conn, sessionID, messages string) ([]store.SpanRef, error) {
	d := conn.Dialect()
	// What an observation reports of a span may be of another message than what was imported of it: all reports of a
	// span are read of which one is of the messages.
	// The index of span_refs leaves out the spans of decisions: the decisions have them.
	of := `SELECT r.trace_id, r.span_id FROM ` + ofMessages(d, "span_refs") + ` AND r.kind <> 'permission.evaluate'
 UNION SELECT r.trace_id, r.span_id FROM ` + ofMessages(d, "permission_decisions") + ` AND r.span_id IS NOT NULL
 UNION SELECT r.trace_id, r.span_id FROM ` + ofMessages(d, "observations") + ` AND r.span_id IS NOT NULL`
	return mergedSpans(conn, `(`+of+`) AS k CROSS JOIN `, ` AND s.trace_id = k.trace_id AND s.span_id = k.span_id`,
		sessionID, messages)
}

// mergedSpans returns a span for the rows s of spans of the session, the first argument. Before their table in FROM may
// be others to join, after the condition another that begins with AND.
func mergedSpans(conn Conn, others, condition string, args ...any) ([]store.SpanRef, error) {
	spans, err := rowsOf(conn, store.SpanTable, `SELECT `+store.SpanTable.Prefixed("s.")+` FROM `+others+
		`span_refs s WHERE s.session_id = ?1`+condition, args...)
	if err != nil {
		return nil, err
	}
	at := make(map[[2]string]int, len(spans))
	for i := range spans {
		at[[2]string{spans[i].TraceID, spans[i].SpanID}] = i
	}
	observed := make(map[int]bool) // by an observation that is as good as the next ones, or better
	// A log record represents the span in which it was written if that reported nothing itself.
	err = conn.Query(`SELECT `+store.SpanTable.Prefixed("s.", "facts_json")+` FROM `+others+`observations s
 WHERE s.session_id = ?1 AND s.span_id IS NOT NULL AND s.trace_id <> '' AND s.kind IS NOT NULL`+condition+`
 ORDER BY CASE WHEN s.source LIKE 'log-%' THEN 1 ELSE 0 END,
  CASE WHEN s.message_id IS NULL THEN 1 ELSE 0 END, s.source`,
		func(row store.Row) error {
			var span store.SpanRef
			if err := store.SpanTable.Scan(row, &span); err != nil {
				return err
			}
			i, known := at[[2]string{span.TraceID, span.SpanID}]
			if !known {
				i, spans = len(spans), append(spans, span)
				at[[2]string{span.TraceID, span.SpanID}] = i
			} else if !observed[i] && spans[i].Dialect != store.DialectSDK {
				span.TurnStats = spans[i].TurnStats
				spans[i] = span
			}
			observed[i] = true
			return nil
		}, args...)
	slices.SortFunc(spans, store.CompareSpans)
	return spans, err
}
