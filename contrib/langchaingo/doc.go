// Package langchaintrace records agents that are built with github.com/tmc/langchaingo.
//
//	h := langchaintrace.New(tracer, langchaintrace.Options{Agent: "coder"})
//	agent := agents.NewOpenAIFunctionsAgent(h.Model(llm), h.Tools(all...))
//	chain := h.Chain(agents.NewExecutor(agent, agents.WithCallbacksHandler(h)))
//
// A run of the chain is a turn; the calls of the model and of the tools in its context are those of
// the turn. A call of the model without a turn is one by itself.
//
// The callbacks of langchaingo alone do not suffice: they return no context, have neither the tools
// nor the settings of a request, and some models do not report how a call ended.
package langchaintrace
