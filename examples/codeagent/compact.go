package codeagent

import (
	"context"
	"fmt"

	"github.com/agenttrace/agenttrace/agenttrace"
)

const summaryPrompt = "Summarize the conversation for the assistant that will go on with it: " +
	"what the user wants, what was found, what was changed, what is open. Be brief."

// compactIfFull replaces all turns but the last by a summary if the model's context exceeds the limit.
func (a *agent) compactIfFull(ctx context.Context, run *agenttrace.Run) (err error) {
	if a.used <= a.limit || len(a.turns) < 2 {
		return nil
	}
	tail := a.turns[len(a.turns)-1]
	summarized := 2 * (len(a.turns) - 1) // a user message and an answer each
	if a.summary != "" {
		summarized++
	}
	ctx, compaction := run.StartCompaction(ctx, agenttrace.CompactionOptions{
		Auto: true, TailStartID: tail.userMessageID, SummarizedMessages: summarized,
	})
	defer func() {
		if err != nil {
			compaction.Fail(err)
		}
	}()

	req := a.request()
	req.Tools = nil
	head := req.Messages[:len(req.Messages)-len(a.messages)+tail.at]
	head[0].Content = summaryPrompt
	req.Messages = append(head, message{Role: "user", Content: "Summarize."})
	done, err := complete(ctx, a.client, req, nil, a.retrying)
	if err != nil {
		return fmt.Errorf("summarize the conversation: %w", err)
	}
	result := done.result()
	a.summary = done.message.Content
	a.messages = append([]message(nil), a.messages[tail.at:]...)
	a.turns = []turnStart{{0, tail.userMessageID}}
	compaction.End(agenttrace.CompactionResult{Summary: a.summary, SummaryTokens: int64(len(a.summary)+3) / 4,
		Usage: result.Usage})
	a.say("\n[compacted %d messages: %s]\n", summarized, a.summary)
	return nil
}
