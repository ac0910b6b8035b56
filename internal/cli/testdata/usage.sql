INSERT INTO chat_sessions(id, agent, parent_id, cost_usd, created_at, updated_at) VALUES
 ('s', 'a', NULL, 0, 1795198540000, 1795198550000), ('f', 'a', 's', 0, 1795198545000, 1795198551000),
 ('w', 'a', NULL, 0.5, 1795198540000, 1795198550000);
INSERT INTO chat_messages(id, session_id, role, metadata_json, hidden_at, created_at, updated_at) VALUES
 ('u', 's', 'user', '{"usage":{"input":5000}}', NULL, 1795198540000, 1795198540000),
 ('a', 's', 'assistant', '{"usage":{"input":10,"output":2,"reasoning":1,"cache_read":30,"cache_write":4}}', 7,
  1795198540001, 1795198540001),
 ('b', 's', 'assistant', '{"usage":{"input":-3,"output":"x","reasoning":7}}', NULL, 1795198540002, 1795198540002),
 ('c', 's', 'assistant', '{"compaction":true,"usage":{"input":999},"agenttrace":{"input_tokens":70,"output_tokens":3}}', NULL, 1795198540003, 1795198540003),
 ('d', 's', 'assistant', '{"usage":{"input":600}}', NULL, 1795198540004, 1795198540004),
 ('e', 's', 'assistant', '{"compaction":true,"usage":{"input":500,"output":20},"agenttrace":{"context_tokens_before":100000}}', NULL, 1795198540005, 1795198540005),
 ('g', 's', 'assistant', '{"usage":{"input":40},"agenttrace":[]}', NULL, 1795198540006, 1795198540006),
 ('y', 's', 'system', '{"usage":{"input":11}}', NULL, 1795198540007, 1795198540007),
 ('k', 's', 'assistant', 'no json', NULL, 1795198540008, 1795198540008),
 ('fa', 'f', 'assistant', '{"usage":{"input":10,"output":2}}', NULL, 1795198540001, 1795198540001),
 ('fb', 'f', 'assistant', '{"usage":{"input":8}}', NULL, 1795198546000, 1795198546000);
INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, created_at, updated_at) VALUES
 ('p1', 'd', 's', 0, 'data-compaction', '{"type":"data-compaction","data":{"summary":"x","tail_start_id":null,"auto":true,"summary_tokens":600}}', 1, 1),
 ('p2', 'g', 's', 0, 'data-compaction', '{"type":"data-compaction","data":{"summary":"x","tail_start_id":null,"auto":true,"summary_tokens":6}}', 1, 1),
 ('p3', 'g', 's', 1, 'text', '{"type":"text","text":"x"}', 1, 1);
