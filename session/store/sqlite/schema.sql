-- The three canonical tables, as the agent guide and its reference program have
-- them, and the tables that agenttrace adds. FORMAT.md describes every one.

CREATE TABLE IF NOT EXISTS chat_sessions (
  id                TEXT PRIMARY KEY,
  title             TEXT NOT NULL DEFAULT 'New Chat',
  agent             TEXT NOT NULL,
  workspace_id      TEXT,
  workspace_root    TEXT,
  model_json        TEXT,
  mode              TEXT,
  parent_id         TEXT,
  parent_message_id TEXT,
  permissions_json  TEXT NOT NULL DEFAULT '[]',
  metadata_json     TEXT NOT NULL DEFAULT '{}',
  prompt_tokens     INTEGER NOT NULL DEFAULT 0,
  completion_tokens INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens  INTEGER NOT NULL DEFAULT 0,
  cache_read        INTEGER NOT NULL DEFAULT 0,
  cache_write       INTEGER NOT NULL DEFAULT 0,
  total_tokens      INTEGER NOT NULL DEFAULT 0,
  cost_usd          REAL NOT NULL DEFAULT 0,
  created_at        INTEGER NOT NULL,
  updated_at        INTEGER NOT NULL,
  archived_at       INTEGER
);

CREATE TABLE IF NOT EXISTS chat_messages (
  id            TEXT PRIMARY KEY,
  session_id    TEXT NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  role          TEXT NOT NULL,
  metadata_json TEXT NOT NULL DEFAULT '{}',
  hidden_at     INTEGER,
  created_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS chat_parts (
  id                  TEXT PRIMARY KEY,
  message_id          TEXT NOT NULL REFERENCES chat_messages(id) ON DELETE CASCADE,
  session_id          TEXT NOT NULL,
  "index"             INTEGER NOT NULL,
  type                TEXT NOT NULL,
  data_json           TEXT NOT NULL,
  tool_call_id        TEXT,
  tool_state          TEXT,
  continuation_run_id TEXT,
  created_at          INTEGER NOT NULL,
  updated_at          INTEGER NOT NULL
);

CREATE INDEX IF NOT EXISTS idx_chat_sessions_agent_updated ON chat_sessions(agent, updated_at);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_workspace_updated ON chat_sessions(workspace_id, updated_at);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_workspace_root_updated ON chat_sessions(workspace_root, updated_at);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_parent ON chat_sessions(parent_id);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_transcripts ON chat_sessions(parent_id, id) WHERE instr(metadata_json, '"transcript"') > 0;
CREATE INDEX IF NOT EXISTS idx_chat_sessions_archived ON chat_sessions(archived_at);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_updated ON chat_sessions(updated_at, id);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_created ON chat_sessions(created_at, id);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_title ON chat_sessions(title, id);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_tokens ON chat_sessions(total_tokens, id);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_cost ON chat_sessions(cost_usd, id);
CREATE INDEX IF NOT EXISTS idx_chat_sessions_failed ON chat_sessions(id) WHERE instr(metadata_json, '"outcome":"error"') > 0;
CREATE INDEX IF NOT EXISTS idx_chat_messages_session_created ON chat_messages(session_id, created_at);
CREATE INDEX IF NOT EXISTS idx_chat_messages_turns ON chat_messages(session_id, created_at, id, role);
CREATE INDEX IF NOT EXISTS idx_chat_messages_queued ON chat_messages(session_id) WHERE instr(metadata_json, '"queued_at"') > 0;
CREATE INDEX IF NOT EXISTS idx_chat_messages_hidden ON chat_messages(hidden_at) WHERE hidden_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_chat_messages_failed ON chat_messages(session_id) WHERE instr(metadata_json, '"end_reason":"error"') > 0;
CREATE INDEX IF NOT EXISTS idx_chat_messages_model_errors ON chat_messages(session_id) WHERE instr(metadata_json, '"model_errors":["') > 0;
CREATE UNIQUE INDEX IF NOT EXISTS idx_chat_parts_message_index ON chat_parts(message_id, "index");
CREATE INDEX IF NOT EXISTS idx_chat_parts_created ON chat_parts(created_at, id); -- the order of a search
CREATE INDEX IF NOT EXISTS idx_chat_parts_session_type ON chat_parts(session_id, type);
CREATE INDEX IF NOT EXISTS idx_chat_parts_tool_call ON chat_parts(tool_call_id) WHERE tool_call_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_chat_parts_compaction ON chat_parts(session_id, message_id) WHERE type = 'data-compaction';
CREATE INDEX IF NOT EXISTS idx_chat_parts_unsuccessful ON chat_parts(session_id, tool_state) WHERE tool_state <> 'output-available';

CREATE TABLE IF NOT EXISTS system_prompts (
  digest TEXT PRIMARY KEY,
  body   TEXT NOT NULL,
  exact  INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS tool_catalogs (
  digest TEXT PRIMARY KEY,
  body   TEXT NOT NULL,
  exact  INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS permission_decisions (
  id           TEXT PRIMARY KEY,
  session_id   TEXT NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  message_id   TEXT,
  part_id      TEXT,
  tool_call_id TEXT,
  tool_id      TEXT NOT NULL,
  pattern      TEXT,
  action       TEXT NOT NULL,
  source       TEXT,
  outcome      TEXT,
  reply        TEXT,
  reason       TEXT,
  waited_ms    INTEGER,
  decided_at   INTEGER NOT NULL,
  trace_id     TEXT,
  span_id      TEXT
);
CREATE INDEX IF NOT EXISTS idx_permission_decisions_session ON permission_decisions(session_id, decided_at);
CREATE INDEX IF NOT EXISTS idx_permission_decisions_message ON permission_decisions(message_id) WHERE message_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_permission_decisions_elsewhere ON permission_decisions(session_id) WHERE message_id IS NULL;
CREATE INDEX IF NOT EXISTS idx_permission_decisions_denied ON permission_decisions(session_id) WHERE outcome = 'denied';

CREATE TABLE IF NOT EXISTS annotations (
  id         TEXT NOT NULL,
  session_id TEXT NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  message_id TEXT,
  part_id    TEXT,
  kind       TEXT NOT NULL,
  name       TEXT,
  value      REAL,
  comment    TEXT,
  author     TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  deleted_at INTEGER,
  label      TEXT,
  PRIMARY KEY (session_id, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_annotations_name ON annotations(name, kind, session_id) WHERE deleted_at IS NULL;

CREATE TABLE IF NOT EXISTS span_refs (
  session_id     TEXT NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  trace_id       TEXT NOT NULL,
  span_id        TEXT NOT NULL,
  parent_span_id TEXT,
  message_id     TEXT,
  part_id        TEXT,
  kind           TEXT NOT NULL,
  dialect        TEXT NOT NULL,
  start_nano     INTEGER NOT NULL,
  end_nano       INTEGER NOT NULL,
  error          INTEGER NOT NULL DEFAULT 0,
  facts_json     TEXT,
  PRIMARY KEY (session_id, trace_id, span_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_span_refs_message ON span_refs(message_id) WHERE message_id IS NOT NULL AND kind <> 'permission.evaluate';
CREATE INDEX IF NOT EXISTS idx_span_refs_compaction ON span_refs(session_id) WHERE message_id IS NULL AND kind = 'compaction.run';

CREATE TABLE IF NOT EXISTS session_traces (
  trace_id   TEXT NOT NULL,
  session_id TEXT NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  PRIMARY KEY (trace_id, session_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_session_traces_session ON session_traces(session_id);

CREATE TABLE IF NOT EXISTS session_state (
  session_id  TEXT PRIMARY KEY REFERENCES chat_sessions(id) ON DELETE CASCADE,
  state_json  TEXT NOT NULL,
  forked_from TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_session_state_forked_from ON session_state(forked_from) WHERE forked_from IS NOT NULL;

CREATE TABLE IF NOT EXISTS requested_indexes (
  message_id      TEXT NOT NULL REFERENCES chat_messages(id) ON DELETE CASCADE,
  part_id         TEXT NOT NULL,
  requested_index INTEGER NOT NULL,
  PRIMARY KEY (message_id, part_id)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS export_outbox (
  session_id TEXT PRIMARY KEY,
  touched_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS span_outbox (
  session_id TEXT PRIMARY KEY NOT NULL,
  touched_at INTEGER NOT NULL,
  request    BLOB
);

CREATE TABLE IF NOT EXISTS sent_spans (
  session_id TEXT NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  span_id    TEXT NOT NULL,
  PRIMARY KEY (session_id, span_id)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS agenttrace_schema (
  version INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS import_sources (
  path          TEXT PRIMARY KEY,
  format        TEXT,
  reading       TEXT NOT NULL,
  device        INTEGER NOT NULL,
  inode         INTEGER NOT NULL,
  size          INTEGER NOT NULL,
  modified_nano INTEGER NOT NULL,
  beside        TEXT,
  read_to       INTEGER NOT NULL,
  tail          TEXT,
  resume_from   INTEGER NOT NULL,
  state         BLOB,
  report_json   TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS import_source_sessions (
  session_id TEXT NOT NULL,
  path       TEXT NOT NULL,
  PRIMARY KEY (session_id, path)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_import_source_sessions_path ON import_source_sessions(path);

-- The search index is made of 4096 parts at a time, by rowid. Once there are later parts, these have a version, which is
-- the same for as long as none of them changes.
CREATE TABLE IF NOT EXISTS search_segments (
  segment INTEGER PRIMARY KEY,
  version INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS search_part_updated AFTER UPDATE OF data_json ON chat_parts BEGIN
  UPDATE search_segments SET version = random() WHERE segment = old.rowid >> 12;
END;
CREATE TRIGGER IF NOT EXISTS search_part_deleted AFTER DELETE ON chat_parts BEGIN
  UPDATE search_segments SET version = random() WHERE segment = old.rowid >> 12;
END;

-- What statistics need of the messages and calls of a session, and what sessions are ordered by: see
-- session/store/sqlstore/figures.go. The row of a session whose rows change is emptied: it has no turns. Triggers cost an
-- INSERT as much as its indexes do, so there are none for it. Rows are new whose rowid is greater than that of the row to
-- which all have been read, which must still be there.
CREATE TABLE IF NOT EXISTS session_stats (
  session_id TEXT PRIMARY KEY NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  data       BLOB NOT NULL,
  turns      INTEGER,
  errors     INTEGER,
  tokens     INTEGER,
  duration   INTEGER -- figures since turns may be open at once
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_session_stats_turns ON session_stats(turns);
CREATE INDEX IF NOT EXISTS idx_session_stats_errors ON session_stats(errors);
CREATE INDEX IF NOT EXISTS idx_session_stats_tokens ON session_stats(tokens);
CREATE INDEX IF NOT EXISTS idx_session_stats_duration ON session_stats(duration);
CREATE TABLE IF NOT EXISTS stats_read_to (
  source   TEXT PRIMARY KEY NOT NULL,
  last_row INTEGER,
  last_id  TEXT
) WITHOUT ROWID;
-- These decide which messages of a fork are copies.
CREATE TRIGGER IF NOT EXISTS stats_session_updated AFTER UPDATE OF parent_id, created_at ON chat_sessions
WHEN old.parent_id IS NOT new.parent_id OR old.created_at <> new.created_at BEGIN
  UPDATE session_stats SET data = x'', turns = NULL WHERE session_id = old.id AND turns IS NOT NULL;
END;
CREATE TRIGGER IF NOT EXISTS stats_session_deleted AFTER DELETE ON chat_sessions BEGIN
  UPDATE stats_read_to SET (last_row, last_id) =
    (SELECT rowid, id FROM chat_sessions WHERE rowid < old.rowid ORDER BY rowid DESC LIMIT 1)
  WHERE source = 'chat_sessions' AND last_row = old.rowid;
END;
CREATE TRIGGER IF NOT EXISTS stats_message_updated
AFTER UPDATE OF id, session_id, role, metadata_json, hidden_at, created_at ON chat_messages BEGIN
  UPDATE session_stats SET data = x'', turns = NULL
  WHERE session_id IN (old.session_id, new.session_id) AND turns IS NOT NULL;
END;
CREATE TRIGGER IF NOT EXISTS stats_message_deleted AFTER DELETE ON chat_messages BEGIN
  UPDATE session_stats SET data = x'', turns = NULL WHERE session_id = old.session_id AND turns IS NOT NULL;
  UPDATE stats_read_to SET (last_row, last_id) =
    (SELECT rowid, id FROM chat_messages WHERE rowid < old.rowid ORDER BY rowid DESC LIMIT 1)
  WHERE source = 'chat_messages' AND last_row = old.rowid;
END;
CREATE TRIGGER IF NOT EXISTS stats_part_updated
AFTER UPDATE OF id, message_id, session_id, type, data_json, tool_state, created_at ON chat_parts BEGIN
  UPDATE session_stats SET data = x'', turns = NULL
  WHERE session_id IN (old.session_id, new.session_id) AND turns IS NOT NULL;
END;
CREATE TRIGGER IF NOT EXISTS stats_part_deleted AFTER DELETE ON chat_parts BEGIN
  UPDATE session_stats SET data = x'', turns = NULL WHERE session_id = old.session_id AND turns IS NOT NULL;
  UPDATE stats_read_to SET (last_row, last_id) =
    (SELECT rowid, id FROM chat_parts WHERE rowid < old.rowid ORDER BY rowid DESC LIMIT 1)
  WHERE source = 'chat_parts' AND last_row = old.rowid;
END;

CREATE TABLE IF NOT EXISTS observations (
  id                 INTEGER PRIMARY KEY,
  trace_id           TEXT NOT NULL,
  source             TEXT NOT NULL,
  owner              TEXT NOT NULL,
  dialect            TEXT NOT NULL,
  span_id            TEXT,
  parent_span_id     TEXT,
  start_nano         INTEGER NOT NULL,
  end_nano           INTEGER NOT NULL,
  error              INTEGER NOT NULL DEFAULT 0,
  opens              INTEGER NOT NULL DEFAULT 0,
  declared_session   TEXT,
  declared_rank      INTEGER NOT NULL DEFAULT 0,
  default_session    TEXT NOT NULL,
  orphan_call        TEXT,
  calls_json         TEXT,
  session_id         TEXT,
  message_id         TEXT,
  others_json        TEXT,
  part_id            TEXT,
  decision_id        TEXT,
  kind               TEXT,
  session_attrs_json TEXT,
  until_nano         INTEGER NOT NULL,
  reach              INTEGER NOT NULL,
  data               BLOB NOT NULL,
  usage_counter      TEXT,
  usage_proof        INTEGER,
  received_nano      INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX IF NOT EXISTS idx_observations_source ON observations(trace_id, source);
CREATE INDEX IF NOT EXISTS idx_observations_owner_start ON observations(owner, start_nano, opens);
CREATE INDEX IF NOT EXISTS idx_observations_opens ON observations(owner, start_nano) WHERE opens;
CREATE INDEX IF NOT EXISTS idx_observations_across ON observations(owner, reach, start_nano, until_nano) WHERE reach > 0;
CREATE INDEX IF NOT EXISTS idx_observations_below ON observations(trace_id, iif(source = span_id, parent_span_id, span_id), start_nano) WHERE NOT opens;
CREATE INDEX IF NOT EXISTS idx_observations_message ON observations(message_id) WHERE message_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_observations_spans ON observations(session_id, trace_id, span_id) WHERE session_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_observations_declared ON observations(trace_id, declared_rank, start_nano, declared_session) WHERE declared_session IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_observations_usage_proof ON observations(owner, usage_counter, usage_proof) WHERE usage_counter IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_observations_guest ON observations(declared_session, start_nano, trace_id, source)
  WHERE declared_session <> owner;
CREATE INDEX IF NOT EXISTS idx_observations_orphan ON observations(orphan_call, start_nano, trace_id) WHERE orphan_call IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_observations_orphan_trace ON observations(trace_id, start_nano, source) WHERE orphan_call IS NOT NULL;

CREATE TABLE IF NOT EXISTS unbuilt_turns (
  owner     TEXT PRIMARY KEY NOT NULL,
  from_nano INTEGER NOT NULL,
  to_nano   INTEGER NOT NULL,
  added     INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS tool_call_requests (
  call_id    TEXT NOT NULL,
  start_nano INTEGER NOT NULL,
  trace_id   TEXT NOT NULL,
  source     TEXT NOT NULL,
  PRIMARY KEY (call_id, start_nano, trace_id, source)
) WITHOUT ROWID;

-- Whoever deletes a session deletes what was kept of its telemetry, too. A row without a
-- state is one that the writer deletes itself, when its telemetry is another session's.
CREATE TRIGGER IF NOT EXISTS delete_observations BEFORE DELETE ON chat_sessions
WHEN EXISTS (SELECT 1 FROM session_state WHERE session_id = old.id) BEGIN
  DELETE FROM tool_call_requests WHERE (call_id, start_nano, trace_id, source) IN (
    SELECT c.value, o.start_nano, o.trace_id, o.source FROM observations o, json_each(o.calls_json) c
    WHERE o.calls_json IS NOT NULL AND (o.session_id = old.id OR o.owner = old.id AND o.session_id IS NULL));
  DELETE FROM unbuilt_turns WHERE owner = old.id;
  DELETE FROM observations WHERE session_id = old.id OR owner = old.id AND session_id IS NULL;
END;

CREATE VIEW IF NOT EXISTS session_spans AS
SELECT session_id, trace_id, span_id, parent_span_id, message_id, part_id, kind, dialect, start_nano, end_nano, error
FROM span_refs l
WHERE dialect = 'agenttrace' OR NOT EXISTS (
  SELECT 1 FROM observations o WHERE o.session_id = l.session_id AND o.trace_id = l.trace_id AND o.span_id = l.span_id)
UNION ALL
SELECT session_id, trace_id, span_id, parent_span_id, message_id, part_id, kind, dialect, start_nano, end_nano, error FROM (
  SELECT session_id, trace_id, span_id, parent_span_id, message_id, part_id, kind, dialect, start_nano, end_nano, error,
    min((source LIKE 'log-%') || (message_id IS NULL) || source)
  FROM observations o
  WHERE session_id IS NOT NULL AND span_id IS NOT NULL AND trace_id <> '' AND kind IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM span_refs l
    WHERE l.session_id = o.session_id AND l.trace_id = o.trace_id AND l.span_id = o.span_id AND l.dialect = 'agenttrace')
  GROUP BY session_id, trace_id, span_id);
