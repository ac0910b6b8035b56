-- By which sessions are listed in any order, and found by what went wrong in them.
CREATE INDEX idx_chat_sessions_created ON chat_sessions(created_at, id);
CREATE INDEX idx_chat_sessions_title ON chat_sessions(title, id);
CREATE INDEX idx_chat_sessions_tokens ON chat_sessions(total_tokens, id);
CREATE INDEX idx_chat_sessions_cost ON chat_sessions(cost_usd, id);
CREATE INDEX idx_chat_sessions_failed ON chat_sessions(id) WHERE strpos(metadata_json, '"outcome":"error"') > 0;
CREATE INDEX idx_chat_messages_failed ON chat_messages(session_id) WHERE strpos(metadata_json, '"end_reason":"error"') > 0;
DROP INDEX idx_chat_parts_session;
CREATE INDEX idx_chat_parts_session_type ON chat_parts(session_id, type);
DROP INDEX idx_chat_parts_approval;
CREATE INDEX idx_chat_parts_unsuccessful ON chat_parts(session_id, tool_state) WHERE tool_state <> 'output-available';
CREATE INDEX idx_permission_decisions_denied ON permission_decisions(session_id) WHERE outcome = 'denied';
