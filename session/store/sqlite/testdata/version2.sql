-- Gives the tables the names and columns of version 2.
DROP VIEW session_spans; DROP TRIGGER delete_observations;
DROP INDEX idx_observations_usage_proof; DROP INDEX idx_observations_across;
ALTER TABLE observations DROP COLUMN until_nano;
ALTER TABLE observations DROP COLUMN usage_counter;
ALTER TABLE observations DROP COLUMN usage_proof;
DROP TABLE unbuilt_turns;
CREATE TABLE observation_windows (home TEXT, at_nano INTEGER, carry BLOB);
ALTER TABLE observations RENAME COLUMN session_attrs_json TO about_json;
ALTER TABLE observations RENAME COLUMN orphan_call TO stray_call;
ALTER TABLE observations RENAME COLUMN default_session TO own;
ALTER TABLE observations RENAME COLUMN declared_rank TO said_rank;
ALTER TABLE observations RENAME COLUMN declared_session TO said_session;
ALTER TABLE observations RENAME COLUMN owner TO home;
ALTER TABLE tool_call_requests RENAME TO announced_calls;
ALTER TABLE requested_indexes RENAME COLUMN requested_index TO claim;
ALTER TABLE requested_indexes RENAME TO part_claims;
ALTER TABLE span_refs RENAME TO span_links;
UPDATE agenttrace_schema SET version = 2;
