-- Scores in a word, with or without a number.
ALTER TABLE annotations ADD COLUMN label TEXT COLLATE "C";
ALTER TABLE annotations ALTER COLUMN value DROP NOT NULL;
ALTER TABLE annotations ALTER COLUMN value DROP DEFAULT;
