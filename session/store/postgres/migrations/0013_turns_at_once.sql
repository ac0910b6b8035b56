-- Figures that are other ones now, of turns that were open at once, which are made again.
UPDATE session_stats SET data = '', turns = NULL;
