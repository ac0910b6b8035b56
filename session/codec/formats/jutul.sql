CREATE TABLE events (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	timestamp    TEXT NOT NULL,
	kind         TEXT NOT NULL,
	payload_json TEXT NOT NULL
);
CREATE INDEX events_kind_idx ON events (kind);
