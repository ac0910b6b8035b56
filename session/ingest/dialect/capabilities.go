package dialect

// Topic is something that a session needs to know from its source.
type Topic string

// Topics, in the order of the documentation's table.
const (
	TopicSession    Topic = "session id"
	TopicTurn       Topic = "turn"
	TopicUser       Topic = "user text"
	TopicText       Topic = "assistant text"
	TopicReasoning  Topic = "reasoning"
	TopicToolInput  Topic = "tool input"
	TopicToolOutput Topic = "tool output"
	TopicToolError  Topic = "tool error"
	TopicPermission Topic = "permission"
	TopicCompaction Topic = "compaction"
	TopicPrompt     Topic = "system prompt"
	TopicCatalog    Topic = "tool catalog"
	TopicModel      Topic = "model"
	TopicTokens     Topic = "tokens"
	TopicCache      Topic = "cache tokens"
	TopicThinking   Topic = "reasoning tokens"
	TopicCost       Topic = "cost"
	TopicFinish     Topic = "finish reason"
	TopicAbort      Topic = "abort"
	TopicTitle      Topic = "title"
)

// Topics lists every topic.
var Topics = []Topic{
	TopicSession, TopicTurn, TopicUser, TopicText, TopicReasoning, TopicToolInput, TopicToolOutput, TopicToolError,
	TopicPermission, TopicCompaction, TopicPrompt, TopicCatalog, TopicModel, TopicTokens, TopicCache, TopicThinking,
	TopicCost, TopicFinish, TopicAbort, TopicTitle,
}

// Capabilities maps what a dialect can report to where it reports it: "span", "log", "span, log",
// with a remark in brackets where that is not all, as in "span (of tools)". What a user must enable
// in the client follows "opt-in: ", and comes last: "opt-in: span, log", "log; opt-in: span". A
// topic that is absent is one that the dialect cannot report.
type Capabilities map[Topic]string

// capabilities are [Capabilities] with the topics of each place in one list.
type capabilities map[string][]Topic

func (c capabilities) byTopic() Capabilities {
	all := make(Capabilities)
	for where, topics := range c {
		for _, topic := range topics {
			all[topic] = where
		}
	}
	return all
}
