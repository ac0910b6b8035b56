-- The schema of the reference program, word for word.
CREATE TABLE chat_sessions (id TEXT PRIMARY KEY, title TEXT NOT NULL DEFAULT 'New Chat', agent TEXT NOT NULL, workspace_id TEXT,
 workspace_root TEXT, model_json TEXT, mode TEXT, parent_id TEXT, parent_message_id TEXT, permissions_json TEXT NOT NULL DEFAULT '[]',
 metadata_json TEXT NOT NULL DEFAULT '{}', prompt_tokens INTEGER NOT NULL DEFAULT 0, completion_tokens INTEGER NOT NULL DEFAULT 0,
 reasoning_tokens INTEGER NOT NULL DEFAULT 0, cache_read INTEGER NOT NULL DEFAULT 0, cache_write INTEGER NOT NULL DEFAULT 0,
 total_tokens INTEGER NOT NULL DEFAULT 0, cost_usd REAL NOT NULL DEFAULT 0, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
 archived_at INTEGER);
CREATE TABLE chat_messages (id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE, role TEXT NOT NULL,
 metadata_json TEXT NOT NULL DEFAULT '{}', hidden_at INTEGER, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE chat_parts (id TEXT PRIMARY KEY, message_id TEXT NOT NULL REFERENCES chat_messages(id) ON DELETE CASCADE, session_id TEXT NOT NULL,
 "index" INTEGER NOT NULL, type TEXT NOT NULL, data_json TEXT NOT NULL, tool_call_id TEXT, tool_state TEXT, continuation_run_id TEXT,
 created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE INDEX idx_chat_sessions_agent_updated ON chat_sessions(agent, updated_at);
CREATE INDEX idx_chat_sessions_workspace_updated ON chat_sessions(workspace_id, updated_at);
CREATE INDEX idx_chat_sessions_parent ON chat_sessions(parent_id);
CREATE INDEX idx_chat_sessions_archived ON chat_sessions(archived_at);
CREATE INDEX idx_chat_messages_session_created ON chat_messages(session_id, created_at);
CREATE INDEX idx_chat_messages_hidden ON chat_messages(hidden_at);
CREATE UNIQUE INDEX idx_chat_parts_message_index ON chat_parts(message_id, "index");
CREATE INDEX idx_chat_parts_session ON chat_parts(session_id);
CREATE INDEX idx_chat_parts_tool_call ON chat_parts(tool_call_id);
