-- As crates/goose/src/session/session_manager.rs creates it; see agents_test.go.
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
INSERT INTO schema_version (version) VALUES (16);
CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', description TEXT NOT NULL DEFAULT '',
  user_set_name BOOLEAN DEFAULT FALSE, session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL,
  created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
  extension_data TEXT DEFAULT '{}', total_tokens INTEGER, input_tokens INTEGER, output_tokens INTEGER,
  cache_read_tokens INTEGER, cache_write_tokens INTEGER, accumulated_total_tokens INTEGER,
  accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER, accumulated_cache_read_tokens INTEGER,
  accumulated_cache_write_tokens INTEGER, accumulated_cost REAL, schedule_id TEXT, recipe_json TEXT,
  user_recipe_values_json TEXT, provider_name TEXT, model_config_json TEXT, goose_mode TEXT NOT NULL DEFAULT 'auto',
  archived_at TIMESTAMP, project_id TEXT, parent_session_id TEXT, parent_delegation TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT NOT NULL,
  role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL,
  timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP, tokens INTEGER, metadata_json TEXT);
CREATE TABLE usage_ledger (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
  created_timestamp INTEGER NOT NULL, model TEXT, input_tokens INTEGER, output_tokens INTEGER, total_tokens INTEGER,
  cache_read_tokens INTEGER, cache_write_tokens INTEGER, cost REAL, cost_source TEXT, is_compaction INTEGER DEFAULT 0);

INSERT INTO sessions (id, name, session_type, working_dir, created_at, updated_at, accumulated_input_tokens, accumulated_output_tokens, provider_name, model_config_json, goose_mode) VALUES ('20260801_1', 'Fix the parser', 'user', '/work/app', '2026-08-01 10:00:00', '2026-08-01 10:05:00', 5400, 200, 'anthropic', '{"model_name": "claude-sonnet-4-6", "context_limit": 200000}', 'smart_approve');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_1', '20260801_1', 'user',
  '[{"type":"text","text":"fix the parser"},{"type":"image","data":"iVBORw0=","mimeType":"image/png"}]', 1785578401, '{"userVisible":true,"agentVisible":false}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_2', '20260801_1', 'assistant',
  '[{"type":"thinking","thinking":"I look first.","signature":"x"},{"type":"text","text":"Looking."}]', 1785578403, '{"userVisible":true,"agentVisible":false}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_2', '20260801_1', 'assistant',
  '[{"type":"toolRequest","id":"toolu_1","toolCall":{"status":"success","value":{"name":"developer__shell","arguments":{"command":"ls"}}}},{"type":"toolRequest","id":"toolu_2","toolCall":{"status":"success","value":{"name":"developer__text_editor","arguments":{"command":"view","path":"/x"}}}},{"type":"toolRequest","id":"toolu_3","toolCall":{"status":"error","error":"-32602: invalid arguments"}}]', 1785578404, '{"userVisible":true,"agentVisible":false}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_3', '20260801_1', 'user',
  '[{"type":"actionRequired","data":{"actionType":"toolConfirmationResponse","id":"toolu_1","permission":"allow_once"}}]', 1785578406, '{"userVisible":false,"agentVisible":false}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_4', '20260801_1', 'user',
  '[{"type":"toolResponse","id":"toolu_1","toolResult":{"status":"success","value":{"content":[{"type":"text","text":"parse.go","annotations":{"audience":["assistant"]}},{"type":"text","text":"parse.go\n","annotations":{"audience":["user"],"priority":0.0}}],"isError":false}}},{"type":"toolResponse","id":"toolu_2","toolResult":{"status":"error","error":"-32603: no such file"}}]', 1785578407, '{"userVisible":true,"agentVisible":false}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_5', '20260801_1', 'assistant',
  '[{"type":"text","text":"It is fixed."}]', 1785578409, '{"userVisible":true,"agentVisible":false}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_6', '20260801_1', 'assistant',
  '[{"type":"systemNotification","notificationType":"inlineMessage","msg":"Exceeded auto-compact threshold of 80%. Performing auto-compaction..."}]', 1785578460, '{"userVisible":true,"agentVisible":false}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_7', '20260801_1', 'user',
  '[{"type":"text","text":"The parser was fixed."}]', 1785578466, '{"userVisible":false,"agentVisible":true}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_8', '20260801_1', 'assistant',
  '[{"type":"text","text":"Your context was compacted. Continue."}]', 1785578466, '{"userVisible":false,"agentVisible":true}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_9', '20260801_1', 'user',
  '[{"type":"text","text":"now delegate"}]', 1785578470, '{"userVisible":true,"agentVisible":true}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_10', '20260801_1', 'assistant',
  '[{"type":"toolRequest","id":"toolu_4","toolCall":{"status":"success","value":{"name":"delegate","arguments":{"instructions":"look"}}}}]', 1785578472, '{"userVisible":true,"agentVisible":true}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_11', '20260801_1', 'user',
  '[{"type":"toolResponse","id":"toolu_4","toolResult":{"status":"success","value":[{"type":"text","text":"looked"}]}}]', 1785578480, '{"userVisible":true,"agentVisible":true}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_12', '20260801_1', 'assistant',
  '[{"type":"error","kind":"creditsExhausted","message":"Out of credits"}]', 1785578481, '{"userVisible":true,"agentVisible":true}');
INSERT INTO usage_ledger (session_id, created_timestamp, model, input_tokens, output_tokens, total_tokens, cache_read_tokens,
  cache_write_tokens, cost, cost_source, is_compaction) VALUES ('20260801_1', 1785578405, 'claude-sonnet-4-6', 2000, 80, 2080, 1500, 300, 0.0031, 'estimated', 0);
INSERT INTO usage_ledger (session_id, created_timestamp, model, input_tokens, output_tokens, total_tokens, cache_read_tokens,
  cache_write_tokens, cost, cost_source, is_compaction) VALUES ('20260801_1', 1785578410, 'claude-sonnet-4-6', 2200, 30, 2230, 2000, 100, 0.0012, 'estimated', 0);
INSERT INTO usage_ledger (session_id, created_timestamp, model, input_tokens, output_tokens, total_tokens, cache_read_tokens,
  cache_write_tokens, cost, cost_source, is_compaction) VALUES ('20260801_1', 1785578465, 'claude-haiku-4-5', 900, 70, 970, 0, 0, 0.001, 'estimated', 1);
INSERT INTO usage_ledger (session_id, created_timestamp, model, input_tokens, output_tokens, total_tokens, cache_read_tokens,
  cache_write_tokens, cost, cost_source, is_compaction) VALUES ('20260801_1', 1785578473, 'claude-sonnet-4-6', 300, 20, 320, 0, 0, NULL, 'estimated', 0);
INSERT INTO sessions (id, name, session_type, working_dir, created_at, updated_at, provider_name, model_config_json, parent_session_id, accumulated_input_tokens, accumulated_output_tokens) VALUES ('20260801_2', 'Subagent task', 'sub_agent', '/work/app', '2026-08-01 10:01:13', '2026-08-01 10:01:19', 'anthropic', '{"model_name": "claude-haiku-4-5"}', '20260801_1', 100, 10);
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_a', '20260801_2', 'user',
  '[{"type":"text","text":"look"}]', 1785578473, '{"userVisible":true,"agentVisible":true}');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES ('msg_b', '20260801_2', 'assistant',
  '[{"type":"text","text":"looked"}]', 1785578478, '{"userVisible":true,"agentVisible":true}');
