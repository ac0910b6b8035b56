package modelapi

import "github.com/agenttrace/agenttrace/internal/lazy"

var (
	aboutConversation = lazy.Regexp(`(?i)\b(titles?|headline|name|summar\w+|compact)\b[^.!?\n]{0,40}\b` +
		`(conversations?|chats?|sessions?|dialog(ue)?s?|discussion|thread|transcript|history|messages|above|so far)\b`)
	title = lazy.Regexp(`(?i)\b(titles?|headline)\b`)
)

// IsAboutConversation reports whether instructions surely name a title or a summary of a conversation.
func IsAboutConversation(text string) bool { return aboutConversation().MatchString(text) }

// IsForTitle reports whether instructions surely name a title of a conversation.
func IsForTitle(text string) bool { return IsAboutConversation(text) && title().MatchString(text) }
