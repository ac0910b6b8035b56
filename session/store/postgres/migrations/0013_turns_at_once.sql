-- Figures that are other ones now, of turns that were open at once, which are made again.
UPDATE session_stats SET data = '', turns = NULL;
CREATE INDEX idx_span_refs_compaction ON span_refs(session_id) WHERE message_id IS NULL AND kind = 'compaction.run';
