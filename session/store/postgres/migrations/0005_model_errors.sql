-- By which sessions with a failed model call are found.
CREATE INDEX idx_chat_messages_model_errors ON chat_messages(session_id) WHERE strpos(metadata_json, '"model_errors":["') > 0;
