// Package genkittrace records agents that are built with github.com/firebase/genkit/go.
//
//	h := genkittrace.New(tracer, genkittrace.Options{Agent: "coder"})
//	tool := genkit.DefineTool(g, "ls", "Lists files.", genkittrace.Tool("ls", list))
//	response, err := h.Generate(ctx, g, ai.WithPrompt(question), ai.WithTools(tool))
//
// A Generate is a turn; the calls of the model and of the tools in it are those of the turn. [Handler.Middleware]
// does the same for prompts, and where ai.WithMiddleware has others, in a context of [Handler.Start].
//
// Genkit does not tell a tool which call it executes, and runs those of an answer at the same time. [Tool] finds the
// call by its input. Without it, a call lasts until the next request has its result, which is marked as inferred.
package genkittrace
