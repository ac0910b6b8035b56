-- A session as the reference program leaves it: a rewind by column, a tool call, a rollup, and a queued message's
-- metadata.
INSERT INTO chat_sessions(id, title, agent, workspace_root, model_json, metadata_json, prompt_tokens, completion_tokens, total_tokens, created_at, updated_at)
 VALUES ('ses_ref', 'Fix it', 'grida', '/w', '{"provider_id":"openai","tier":"mini"}', '{"acp":{"cwd":"/w"}}', 10, 5, 15, 1000, 2000);
INSERT INTO chat_messages VALUES ('msg_u', 'ses_ref', 'user', '{}', NULL, 1000, 1000);
INSERT INTO chat_messages VALUES ('msg_a', 'ses_ref', 'assistant', '{"usage":{"input":10,"output":5,"reasoning":0,"cache_read":0,"cache_write":0}}', NULL, 1001, 1500);
INSERT INTO chat_messages VALUES ('msg_h', 'ses_ref', 'user', '{"queued_at":1600}', 1900, 1600, 1600);
INSERT INTO chat_parts VALUES ('prt_u', 'msg_u', 'ses_ref', 0, 'text', '{"type":"text","text":"hi"}', NULL, NULL, NULL, 1000, 1000);
INSERT INTO chat_parts VALUES ('prt_t', 'msg_a', 'ses_ref', 0, 'tool-bash', '{"type":"tool-bash","toolCallId":"c1","state":"output-available","input":{},"output":1}', 'c1', 'output-available', NULL, 1001, 1400);
INSERT INTO chat_parts VALUES ('prt_h', 'msg_h', 'ses_ref', 0, 'text', '{"type":"text","text":"no"}', NULL, NULL, NULL, 1600, 1600);
