// Package modelhttp records the model calls of an agent that has no instrumentation of its
// own, where they pass anyway: at its HTTP client.
//
//	client := &http.Client{Transport: modelhttp.New(tracer, modelhttp.Options{Agent: "coder"})}
//
// The tracer needs a tracer provider, as setup.Init of agenttrace/setup sets it. Without one nothing
// is stored, which is reported to otel.Handle once.
//
// Give the client to the provider's library (option.WithHTTPClient of anthropic-sdk-go and openai-go,
// ClientConfig.HTTPClient of genai, Options.HTTPClient of the AWS SDK), or give the first two
// [Transport.Middleware]. The requests of an agent have its whole conversation, and the answers have the rest, so
// that sessions come to have what they have with package agenttrace: turns with their messages, reasoning, tool
// calls with input and output, usage, the model, the system prompt and the tools.
//
// Requests are recognized by their path and body: Anthropic Messages, OpenAI chat
// completions and Responses, Gemini generateContent, Bedrock Converse and InvokeModel, each
// also where another cloud or a compatible server offers it. Everything else passes.
//
// A [Transport] changes nothing for the agent: answers are parsed as the agent reads them, with bounded buffers,
// errors stay the same, and a mistake in parsing is reported to otel.Handle and to nobody else. An answer that is
// closed before its end is an aborted call. Attempts of one request are one call. A count that the provider did not
// send is missing, and never zero.
//
// A request belongs to the turn in its context, to the session that [WithSession], the baggage or
// [Options].SessionKey names, or else to the conversation that it continues; a server with many users
// does best to name the session. docs/modelhttp.md has the rules for that, and for what is a turn, a
// sub-agent, a call beside the conversation, and a compaction.
package modelhttp
