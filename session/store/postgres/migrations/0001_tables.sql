-- The tables of a session store in PostgreSQL: those of sessions.db, with the same columns. Text is compared by its
-- bytes, as everywhere in agenttrace. Every key contains the column by which a distributed engine places the rows:
-- session_id, or trace_id where rows are looked up by trace.

CREATE TABLE chat_sessions (
  id                TEXT COLLATE "C" PRIMARY KEY,
  title             TEXT COLLATE "C" NOT NULL DEFAULT 'New Chat',
  agent             TEXT COLLATE "C" NOT NULL,
  workspace_id      TEXT COLLATE "C",
  workspace_root    TEXT COLLATE "C",
  model_json        TEXT COLLATE "C",
  mode              TEXT COLLATE "C",
  parent_id         TEXT COLLATE "C",
  parent_message_id TEXT COLLATE "C",
  permissions_json  TEXT COLLATE "C" NOT NULL DEFAULT '[]',
  metadata_json     TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  prompt_tokens     BIGINT NOT NULL DEFAULT 0,
  completion_tokens BIGINT NOT NULL DEFAULT 0,
  reasoning_tokens  BIGINT NOT NULL DEFAULT 0,
  cache_read        BIGINT NOT NULL DEFAULT 0,
  cache_write       BIGINT NOT NULL DEFAULT 0,
  total_tokens      BIGINT NOT NULL DEFAULT 0,
  cost_usd          DOUBLE PRECISION NOT NULL DEFAULT 0,
  created_at        BIGINT NOT NULL,
  updated_at        BIGINT NOT NULL,
  archived_at       BIGINT
);
CREATE INDEX idx_chat_sessions_agent_updated ON chat_sessions(agent, updated_at);
CREATE INDEX idx_chat_sessions_workspace_updated ON chat_sessions(workspace_id, updated_at);
CREATE INDEX idx_chat_sessions_workspace_root_updated ON chat_sessions(workspace_root, updated_at);
CREATE INDEX idx_chat_sessions_parent ON chat_sessions(parent_id);
CREATE INDEX idx_chat_sessions_transcripts ON chat_sessions(parent_id, id) WHERE strpos(metadata_json, '"transcript"') > 0;
CREATE INDEX idx_chat_sessions_archived ON chat_sessions(archived_at);
CREATE INDEX idx_chat_sessions_updated ON chat_sessions(updated_at, id);

CREATE TABLE chat_messages (
  id            TEXT COLLATE "C" NOT NULL,
  session_id    TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  role          TEXT COLLATE "C" NOT NULL,
  metadata_json TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  hidden_at     BIGINT,
  created_at    BIGINT NOT NULL,
  updated_at    BIGINT NOT NULL,
  PRIMARY KEY (id, session_id)
);
CREATE INDEX idx_chat_messages_session_created ON chat_messages(session_id, created_at, id);
CREATE INDEX idx_chat_messages_hidden ON chat_messages(hidden_at) WHERE hidden_at IS NOT NULL;

CREATE TABLE chat_parts (
  id                  TEXT COLLATE "C" NOT NULL,
  message_id          TEXT COLLATE "C" NOT NULL,
  session_id          TEXT COLLATE "C" NOT NULL,
  "index"             BIGINT NOT NULL,
  type                TEXT COLLATE "C" NOT NULL,
  data_json           TEXT COLLATE "C" NOT NULL,
  tool_call_id        TEXT COLLATE "C",
  tool_state          TEXT COLLATE "C",
  continuation_run_id TEXT COLLATE "C",
  created_at          BIGINT NOT NULL,
  updated_at          BIGINT NOT NULL,
  PRIMARY KEY (id, session_id),
  FOREIGN KEY (message_id, session_id) REFERENCES chat_messages(id, session_id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX idx_chat_parts_message_index ON chat_parts(message_id, session_id, "index");
CREATE INDEX idx_chat_parts_session ON chat_parts(session_id);
CREATE INDEX idx_chat_parts_created ON chat_parts(created_at, id); -- by which a search goes through them
CREATE INDEX idx_chat_parts_tool_call ON chat_parts(tool_call_id) WHERE tool_call_id IS NOT NULL;
CREATE INDEX idx_chat_parts_compaction ON chat_parts(session_id, message_id) WHERE type = 'data-compaction';
CREATE INDEX idx_chat_parts_approval ON chat_parts(session_id) WHERE tool_state = 'approval-requested';

CREATE TABLE system_prompts (
  digest TEXT COLLATE "C" PRIMARY KEY,
  body   TEXT COLLATE "C" NOT NULL,
  exact  SMALLINT NOT NULL DEFAULT 1
);
CREATE TABLE tool_catalogs (
  digest TEXT COLLATE "C" PRIMARY KEY,
  body   TEXT COLLATE "C" NOT NULL,
  exact  SMALLINT NOT NULL DEFAULT 1
);

CREATE TABLE permission_decisions (
  id           TEXT COLLATE "C" NOT NULL,
  session_id   TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  message_id   TEXT COLLATE "C",
  part_id      TEXT COLLATE "C",
  tool_call_id TEXT COLLATE "C",
  tool_id      TEXT COLLATE "C" NOT NULL,
  pattern      TEXT COLLATE "C",
  action       TEXT COLLATE "C" NOT NULL,
  source       TEXT COLLATE "C",
  outcome      TEXT COLLATE "C",
  reply        TEXT COLLATE "C",
  reason       TEXT COLLATE "C",
  waited_ms    BIGINT,
  decided_at   BIGINT NOT NULL,
  trace_id     TEXT COLLATE "C",
  span_id      TEXT COLLATE "C",
  PRIMARY KEY (id, session_id)
);
CREATE INDEX idx_permission_decisions_session ON permission_decisions(session_id, decided_at);

CREATE TABLE span_refs (
  session_id     TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  trace_id       TEXT COLLATE "C" NOT NULL,
  span_id        TEXT COLLATE "C" NOT NULL,
  parent_span_id TEXT COLLATE "C",
  message_id     TEXT COLLATE "C",
  part_id        TEXT COLLATE "C",
  kind           TEXT COLLATE "C" NOT NULL,
  dialect        TEXT COLLATE "C" NOT NULL,
  start_nano     BIGINT NOT NULL,
  end_nano       BIGINT NOT NULL,
  error          SMALLINT NOT NULL DEFAULT 0,
  facts_json     TEXT COLLATE "C",
  PRIMARY KEY (session_id, trace_id, span_id)
);
CREATE INDEX idx_span_refs_facts ON span_refs(message_id) WHERE facts_json IS NOT NULL;

CREATE TABLE session_traces (
  trace_id   TEXT COLLATE "C" NOT NULL,
  session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  PRIMARY KEY (trace_id, session_id)
);
CREATE INDEX idx_session_traces_session ON session_traces(session_id);

CREATE TABLE session_state (
  session_id  TEXT COLLATE "C" PRIMARY KEY REFERENCES chat_sessions(id) ON DELETE CASCADE,
  state_json  TEXT COLLATE "C" NOT NULL,
  forked_from TEXT COLLATE "C"
);
CREATE INDEX idx_session_state_forked_from ON session_state(forked_from) WHERE forked_from IS NOT NULL;

CREATE TABLE requested_indexes (
  session_id      TEXT COLLATE "C" NOT NULL,
  message_id      TEXT COLLATE "C" NOT NULL,
  part_id         TEXT COLLATE "C" NOT NULL,
  requested_index BIGINT NOT NULL,
  PRIMARY KEY (message_id, part_id, session_id),
  FOREIGN KEY (message_id, session_id) REFERENCES chat_messages(id, session_id) ON DELETE CASCADE
);

CREATE TABLE export_outbox (
  session_id TEXT COLLATE "C" PRIMARY KEY,
  touched_at BIGINT NOT NULL
);

CREATE TABLE import_sources (
  path          TEXT COLLATE "C" PRIMARY KEY,
  format        TEXT COLLATE "C",
  reading       TEXT COLLATE "C" NOT NULL,
  device        BIGINT NOT NULL,
  inode         BIGINT NOT NULL,
  size          BIGINT NOT NULL,
  modified_nano BIGINT NOT NULL,
  beside        TEXT COLLATE "C",
  read_to       BIGINT NOT NULL,
  tail          TEXT COLLATE "C",
  resume_from   BIGINT NOT NULL,
  state         BYTEA,
  report_json   TEXT COLLATE "C" NOT NULL
);
CREATE TABLE import_source_sessions (
  session_id TEXT COLLATE "C" NOT NULL,
  path       TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (session_id, path)
);
CREATE INDEX idx_import_source_sessions_path ON import_source_sessions(path);

CREATE TABLE observations (
  trace_id           TEXT COLLATE "C" NOT NULL,
  source             TEXT COLLATE "C" NOT NULL,
  owner              TEXT COLLATE "C" NOT NULL,
  dialect            TEXT COLLATE "C" NOT NULL,
  span_id            TEXT COLLATE "C",
  parent_span_id     TEXT COLLATE "C",
  start_nano         BIGINT NOT NULL,
  end_nano           BIGINT NOT NULL,
  error              SMALLINT NOT NULL DEFAULT 0,
  opens              SMALLINT NOT NULL DEFAULT 0,
  declared_session   TEXT COLLATE "C",
  declared_rank      BIGINT NOT NULL DEFAULT 0,
  default_session    TEXT COLLATE "C" NOT NULL,
  orphan_call        TEXT COLLATE "C",
  calls_json         TEXT COLLATE "C",
  session_id         TEXT COLLATE "C",
  message_id         TEXT COLLATE "C",
  others_json        TEXT COLLATE "C",
  part_id            TEXT COLLATE "C",
  decision_id        TEXT COLLATE "C",
  kind               TEXT COLLATE "C",
  session_attrs_json TEXT COLLATE "C",
  until_nano         BIGINT NOT NULL,
  reach              BIGINT NOT NULL,
  data               BYTEA NOT NULL,
  usage_counter      TEXT COLLATE "C",
  usage_proof        BIGINT,
  PRIMARY KEY (trace_id, source)
);
CREATE INDEX idx_observations_owner_start ON observations(owner, start_nano, opens);
CREATE INDEX idx_observations_opens ON observations(owner, start_nano) WHERE opens = 1;
CREATE INDEX idx_observations_across ON observations(owner, reach, start_nano, until_nano) WHERE reach > 0;
CREATE INDEX idx_observations_below ON observations(
  trace_id, (CASE WHEN source = span_id THEN parent_span_id ELSE span_id END), start_nano) WHERE opens = 0;
CREATE INDEX idx_observations_session ON observations(session_id, trace_id) WHERE session_id IS NOT NULL;
CREATE INDEX idx_observations_session_end ON observations(session_id, (greatest(start_nano, end_nano)))
  WHERE session_id IS NOT NULL;
CREATE INDEX idx_observations_declared ON observations(trace_id, declared_rank, start_nano, declared_session)
  WHERE declared_session IS NOT NULL;
CREATE INDEX idx_observations_usage_proof ON observations(owner, usage_counter, usage_proof) WHERE usage_counter IS NOT NULL;
CREATE INDEX idx_observations_guest ON observations(declared_session, start_nano, trace_id, source)
  WHERE declared_session <> owner;
CREATE INDEX idx_observations_orphan ON observations(orphan_call, start_nano, trace_id) WHERE orphan_call IS NOT NULL;
CREATE INDEX idx_observations_orphan_trace ON observations(trace_id, start_nano, source) WHERE orphan_call IS NOT NULL;
CREATE INDEX idx_observations_pending ON observations(owner) WHERE session_id IS NULL;

CREATE TABLE observation_windows (
  owner   TEXT COLLATE "C" NOT NULL,
  at_nano BIGINT NOT NULL,
  carry   BYTEA NOT NULL,
  PRIMARY KEY (owner, at_nano)
);

CREATE TABLE tool_call_requests (
  call_id    TEXT COLLATE "C" NOT NULL,
  start_nano BIGINT NOT NULL,
  trace_id   TEXT COLLATE "C" NOT NULL,
  source     TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (call_id, start_nano, trace_id, source)
);

-- What writers lock before they read, so that of two batches that touch one session, trace or call one waits for the
-- other. Sessions that are not stored yet have no row that could be locked. The keys are hashed to a bounded number.
CREATE TABLE writer_locks (
  key BIGINT PRIMARY KEY
);

-- The text, or the whole number, at a path of keys. A row may have what is not JSON, after an import of what was not
-- valid, and JSON may have U+0000, which text cannot: neither may fail a query over all rows.
CREATE FUNCTION json_text(document TEXT, path TEXT[]) RETURNS TEXT LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN replace(document, '\u0000', '\ufffd')::json #>> path;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
  RETURN NULL;
END $$;
CREATE FUNCTION json_int(document TEXT, path TEXT[]) RETURNS BIGINT LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  found TEXT := json_text(document, path);
BEGIN
  RETURN CASE found WHEN 'true' THEN 1 WHEN 'false' THEN 0 ELSE trunc(found::numeric)::bigint END;
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END $$;

CREATE VIEW session_spans AS
SELECT session_id, trace_id, span_id, parent_span_id, message_id, part_id, kind, dialect, start_nano, end_nano, error
FROM span_refs l
WHERE dialect = 'agenttrace' OR NOT EXISTS (
  SELECT 1 FROM observations o WHERE o.session_id = l.session_id AND o.trace_id = l.trace_id AND o.span_id = l.span_id)
UNION ALL
SELECT session_id, trace_id, span_id, parent_span_id, message_id, part_id, kind, dialect, start_nano, end_nano, error FROM (
  SELECT DISTINCT ON (session_id, trace_id, span_id) o.*
  FROM observations o
  WHERE session_id IS NOT NULL AND span_id IS NOT NULL AND trace_id <> '' AND kind IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM span_refs l
    WHERE l.session_id = o.session_id AND l.trace_id = o.trace_id AND l.span_id = o.span_id AND l.dialect = 'agenttrace')
  ORDER BY session_id, trace_id, span_id, (source LIKE 'log-%'), (message_id IS NULL), source) s;

-- Large values are compressed by LZ4 where the server can: by the default they take several times as long.
DO $$
DECLARE
  wide TEXT;
BEGIN
  IF EXISTS (SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)) THEN
    FOREACH wide IN ARRAY ARRAY['chat_parts ALTER data_json', 'chat_messages ALTER metadata_json',
      'span_refs ALTER facts_json', 'observations ALTER data', 'session_state ALTER state_json',
      'system_prompts ALTER body', 'tool_catalogs ALTER body'] LOOP
      EXECUTE 'ALTER TABLE ' || wide || ' SET COMPRESSION lz4';
    END LOOP;
  END IF;
END $$;
