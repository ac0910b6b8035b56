-- What statistics need of the messages and calls of a session: see session/store/sqlstore/figures.go. Who changes these
-- has the row emptied. It is locked until the end of the transaction, also where it is empty already, so that whoever
-- fills it waits and reads what was changed.
CREATE TABLE session_stats (
  session_id TEXT COLLATE "C" PRIMARY KEY REFERENCES chat_sessions(id) ON DELETE CASCADE,
  data       BYTEA NOT NULL
);
CREATE FUNCTION empty_session_stats() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO session_stats SELECT id, '' FROM chat_sessions WHERE id IN (OLD.session_id, NEW.session_id) ORDER BY id
  ON CONFLICT (session_id) DO UPDATE SET data = '' WHERE session_stats.data <> '';
  RETURN NULL;
END $$;
-- Our own transactions do so once for each session. A distributed table has no triggers: there, nothing is kept.
DO $$
BEGIN
  IF to_regclass('pg_dist_partition') IS NULL THEN
    CREATE TRIGGER empty_session_stats AFTER INSERT OR UPDATE OR DELETE ON chat_messages FOR EACH ROW
    WHEN (coalesce(current_setting('agenttrace.writer', true), '') = '') EXECUTE FUNCTION empty_session_stats();
    CREATE TRIGGER empty_session_stats AFTER INSERT OR UPDATE OR DELETE ON chat_parts FOR EACH ROW
    WHEN (coalesce(current_setting('agenttrace.writer', true), '') = '') EXECUTE FUNCTION empty_session_stats();
  END IF;
END $$;
