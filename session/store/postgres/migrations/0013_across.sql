-- What lasts across a time is found by when it ends. The view names the columns that it has, so that others can go.
CREATE OR REPLACE VIEW session_spans AS
SELECT session_id, trace_id, span_id, parent_span_id, message_id, part_id, kind, dialect, start_nano, end_nano, error
FROM span_refs l
WHERE dialect = 'agenttrace' OR NOT EXISTS (
  SELECT 1 FROM observations o WHERE o.session_id = l.session_id AND o.trace_id = l.trace_id AND o.span_id = l.span_id)
UNION ALL
SELECT session_id, trace_id, span_id, parent_span_id, message_id, part_id, kind, dialect, start_nano, end_nano, error FROM (
  SELECT DISTINCT ON (session_id, trace_id, span_id) session_id, trace_id, span_id, parent_span_id, message_id, part_id,
    kind, dialect, start_nano, end_nano, error
  FROM observations o
  WHERE session_id IS NOT NULL AND span_id IS NOT NULL AND trace_id <> '' AND kind IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM span_refs l
    WHERE l.session_id = o.session_id AND l.trace_id = o.trace_id AND l.span_id = o.span_id AND l.dialect = 'agenttrace')
  ORDER BY session_id, trace_id, span_id, (source LIKE 'log-%'), (message_id IS NULL), source) s;
ALTER TABLE observations DROP COLUMN reach;
CREATE INDEX idx_observations_across ON observations(owner, until_nano, start_nano);
