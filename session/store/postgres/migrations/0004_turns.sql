-- By which turns are found, and what belongs to their messages.
DROP INDEX idx_chat_messages_session_created;
CREATE INDEX idx_chat_messages_session_created ON chat_messages(session_id, created_at, id) INCLUDE (role);
CREATE INDEX idx_chat_messages_queued ON chat_messages(session_id) WHERE strpos(metadata_json, '"queued_at"') > 0;
CREATE INDEX idx_permission_decisions_message ON permission_decisions(message_id) WHERE message_id IS NOT NULL;
CREATE INDEX idx_permission_decisions_elsewhere ON permission_decisions(session_id) WHERE message_id IS NULL;
DROP INDEX idx_span_refs_facts;
CREATE INDEX idx_span_refs_message ON span_refs(message_id) WHERE message_id IS NOT NULL AND kind <> 'permission.evaluate';
CREATE INDEX idx_observations_message ON observations(message_id) WHERE message_id IS NOT NULL;
DROP INDEX idx_observations_session;
CREATE INDEX idx_observations_spans ON observations(session_id, trace_id, span_id) WHERE session_id IS NOT NULL;
