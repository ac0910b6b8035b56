-- What a file of an earlier version, or of another program, needs to be up to date: see open.go.

-- IF t.name = 'span_links'
-- Versions 1 and 2 named our tables and columns differently. Views, triggers and indexes that have old names in them
-- are dropped, and made again with the schema.
DROP VIEW IF EXISTS session_spans;
DROP TRIGGER IF EXISTS delete_observations;
DROP INDEX IF EXISTS idx_span_links_facts;
DROP INDEX IF EXISTS idx_observations_home_start;
DROP INDEX IF EXISTS idx_observations_said;
DROP INDEX IF EXISTS idx_observations_stray;
DROP INDEX IF EXISTS idx_observations_stray_trace;
ALTER TABLE span_links RENAME TO span_refs;
ALTER TABLE part_claims RENAME TO requested_indexes;
ALTER TABLE requested_indexes RENAME COLUMN claim TO requested_index;
ALTER TABLE announced_calls RENAME TO tool_call_requests;
ALTER TABLE observations RENAME COLUMN home TO owner;
ALTER TABLE observations RENAME COLUMN said_session TO declared_session;
ALTER TABLE observations RENAME COLUMN said_rank TO declared_rank;
ALTER TABLE observations RENAME COLUMN own TO default_session;
ALTER TABLE observations RENAME COLUMN stray_call TO orphan_call;
ALTER TABLE observations RENAME COLUMN about_json TO session_attrs_json;

-- IF t.name = 'observation_windows'
-- Until version 7 long turns were built in windows.
DROP TRIGGER IF EXISTS delete_observations;
DROP TABLE observation_windows;

-- IF t.name = 'observations' AND 'until_nano' NOT IN (SELECT name FROM pragma_table_info(t.name))
DROP INDEX IF EXISTS idx_observations_reach;
ALTER TABLE observations ADD COLUMN until_nano INTEGER NOT NULL DEFAULT 0;
UPDATE observations SET until_nano = end_nano;

-- IF t.name = 'observations' AND 'usage_counter' NOT IN (SELECT name FROM pragma_table_info(t.name))
ALTER TABLE observations ADD COLUMN usage_counter TEXT;
ALTER TABLE observations ADD COLUMN usage_proof INTEGER;

-- IF t.name = 'unbuilt_turns' AND 'version' IN (SELECT name FROM pragma_table_info(t.name))
-- Until version 8 a long turn was built outside of the transaction that stored its rows.
DROP TRIGGER IF EXISTS delete_observations;
ALTER TABLE unbuilt_turns DROP COLUMN version;

-- IF t.name = 'observations' AND 'received_nano' NOT IN (SELECT name FROM pragma_table_info(t.name))
ALTER TABLE observations ADD COLUMN received_nano INTEGER NOT NULL DEFAULT 0;

-- IF t.name = 'annotations' AND 'label' NOT IN (SELECT name FROM pragma_table_info(t.name))
-- Earlier versions have scores that are numbers alone.
ALTER TABLE annotations RENAME COLUMN value TO number;
ALTER TABLE annotations ADD COLUMN value REAL;
UPDATE annotations SET value = number;
ALTER TABLE annotations DROP COLUMN number;
ALTER TABLE annotations ADD COLUMN label TEXT;

-- IF t.name = 'chat_sessions' AND 'mode' NOT IN (SELECT name FROM pragma_table_info(t.name))
-- The reference program's versions 1 and 2 lack this column and the next.
ALTER TABLE chat_sessions ADD COLUMN mode TEXT;

-- IF t.name = 'chat_parts' AND 'continuation_run_id' NOT IN (SELECT name FROM pragma_table_info(t.name))
ALTER TABLE chat_parts ADD COLUMN continuation_run_id TEXT;

-- IF t.name = 'session_stats' AND t.sql NOT LIKE '%open at once%'
-- Figures that are other ones now, which are made again: see figuresVersion. The first had no sums, and triggers that
-- removed their rows.
DROP TABLE session_stats;
DROP TRIGGER IF EXISTS stats_message_updated;
DROP TRIGGER IF EXISTS stats_message_deleted;
DROP TRIGGER IF EXISTS stats_part_updated;
DROP TRIGGER IF EXISTS stats_part_deleted;

-- IF t.name = 'chat_sessions'
-- Earlier versions made these. idx_chat_parts_session stays where it is: it is also the reference program's.
DROP INDEX IF EXISTS idx_chat_parts_approval;
DROP INDEX IF EXISTS idx_span_refs_facts;
DROP INDEX IF EXISTS idx_observations_session;
DROP INDEX IF EXISTS idx_observations_session_end;
DROP TRIGGER IF EXISTS forget_sources;
