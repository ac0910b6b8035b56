CREATE TABLE annotations (
  id         TEXT COLLATE "C" NOT NULL,
  session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE,
  message_id TEXT COLLATE "C",
  part_id    TEXT COLLATE "C",
  kind       TEXT COLLATE "C" NOT NULL,
  name       TEXT COLLATE "C",
  value      DOUBLE PRECISION NOT NULL DEFAULT 0,
  comment    TEXT COLLATE "C",
  author     TEXT COLLATE "C",
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  deleted_at BIGINT,
  PRIMARY KEY (session_id, id)
);
CREATE INDEX idx_annotations_name ON annotations(name, kind, session_id) WHERE deleted_at IS NULL;
