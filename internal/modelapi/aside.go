package modelapi

import "github.com/agenttrace/agenttrace/internal/lazy"

// Aside matches instructions that surely name a title or a summary of a conversation.
var Aside = lazy.Regexp(`(?i)\b(titles?|headline|name|summar\w+|compact)\b[^.!?\n]{0,40}\b` +
	`(conversations?|chats?|sessions?|dialog(ue)?s?|discussion|thread|transcript|history|messages|above|so far)\b`)
