-- The spans that a connector has sent of sessions, and the sessions that it has yet to look at.
CREATE TABLE span_outbox (
  session_id TEXT COLLATE "C" PRIMARY KEY,
  touched_at BIGINT NOT NULL,
  request    BYTEA
);
CREATE TABLE sent_spans (
  session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  span_id    TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (session_id, span_id)
);
