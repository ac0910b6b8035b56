-- What sessions are ordered by, of their messages and calls. A row that is emptied has no turns.
ALTER TABLE session_stats ADD COLUMN turns BIGINT, ADD COLUMN errors BIGINT, ADD COLUMN tokens BIGINT,
  ADD COLUMN duration BIGINT;
CREATE INDEX idx_session_stats_turns ON session_stats(turns, session_id);
CREATE INDEX idx_session_stats_errors ON session_stats(errors, session_id);
CREATE INDEX idx_session_stats_tokens ON session_stats(tokens, session_id);
CREATE INDEX idx_session_stats_duration ON session_stats(duration, session_id);
CREATE OR REPLACE FUNCTION empty_session_stats() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO session_stats(session_id, data)
  SELECT id, '' FROM chat_sessions WHERE id IN (OLD.session_id, NEW.session_id) ORDER BY id
  ON CONFLICT (session_id) DO UPDATE SET data = '', turns = NULL WHERE session_stats.data <> '';
  RETURN NULL;
END $$;
-- These decide which messages of a fork are copies, which used no tokens of its own.
CREATE FUNCTION empty_stats_of_session() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  UPDATE session_stats SET data = '', turns = NULL WHERE session_id = NEW.id;
  RETURN NULL;
END $$;
DO $$
BEGIN
  IF to_regclass('pg_dist_partition') IS NULL THEN
    CREATE TRIGGER empty_session_stats AFTER UPDATE OF parent_id, created_at ON chat_sessions FOR EACH ROW
    WHEN (OLD.parent_id IS DISTINCT FROM NEW.parent_id OR OLD.created_at <> NEW.created_at)
    EXECUTE FUNCTION empty_stats_of_session();
  END IF;
END $$;
