package codeagent

import (
	"context"

	"github.com/agenttrace/agenttrace/agenttrace"
)

const reviewPrompt = "You review changes of code. Read what you need, then give your verdict in two sentences. " +
	"You can change nothing."

// reviewTool passes the changes so far to a sub-agent. Its session is a child of the turn
// that called the tool, because ctx contains that turn.
func reviewTool(a *agent) tool {
	return tool{
		name: "review", description: "Have a second agent review the changes made so far.", kind: agenttrace.ToolThink,
		properties: `"question":{"type":"string"}`,
		subject:    func(args arguments) string { return args.Question },
		call: func(ctx context.Context, args arguments) (_ string, err error) {
			child := &agent{
				tracer: a.tracer, ws: a.ws, client: a.client, model: a.model, limit: a.limit, prompt: reviewPrompt,
				tools: readTools(a.ws), say: func(string, ...any) {},
			}
			child.session = a.tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "reviewer", Title: args.Question,
				WorkspaceRoot: a.ws.dir})
			a.mu.Lock()
			a.children = append(a.children, child.session.ID())
			a.mu.Unlock()
			ctx, run := child.session.StartRun(ctx, agenttrace.RunOptions{Model: a.model})
			defer run.Done(&err)
			return child.turn(ctx, run, args.Question+"\n\n"+a.ws.changes())
		},
	}
}
