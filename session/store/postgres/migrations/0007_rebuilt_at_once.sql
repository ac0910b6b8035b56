-- A long turn is built in the transaction that stores its rows.
ALTER TABLE unbuilt_turns DROP COLUMN version;
