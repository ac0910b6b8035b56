-- The order of records that have one time.
ALTER TABLE observations ADD COLUMN received_nano BIGINT NOT NULL DEFAULT 0;
