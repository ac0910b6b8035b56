-- Turns are rebuilt whole.
DROP TABLE observation_windows;
DROP INDEX idx_observations_session_end;
CREATE TABLE unbuilt_turns (
  owner     TEXT COLLATE "C" PRIMARY KEY,
  from_nano BIGINT NOT NULL,
  to_nano   BIGINT NOT NULL,
  added     BIGINT NOT NULL,
  version   BIGINT NOT NULL
);
