// Package modelhttp records the model calls of an agent that has no instrumentation of its
// own, where they pass anyway: at its HTTP client.
//
//	client := &http.Client{Transport: modelhttp.New(tracer, modelhttp.Options{Agent: "coder"})}
//
// The tracer needs a tracer provider, as setup.Init of agenttrace/setup sets it. Without one nothing
// is stored, which otel.Handle is told once.
//
// Give the client to the provider's library (option.WithHTTPClient of anthropic-sdk-go and
// openai-go, ClientConfig.HTTPClient of genai, Options.HTTPClient of the AWS SDK), or give
// the first two [Transport.Middleware]. The requests of an agent have its whole
// conversation, and the answers have the rest, so that sessions come to have what they have
// with package agenttrace: turns with their messages, reasoning, tool calls with input and
// output, usage, the model, the system prompt and the tools.
//
// # What is recorded
//
// Requests are recognized by their path and body: Anthropic Messages, OpenAI chat
// completions and Responses, Gemini generateContent, Bedrock Converse and InvokeModel, each
// also where another cloud or a compatible server offers it. Everything else passes.
//
// A [Transport] changes nothing for the agent: answers are parsed as the agent reads them,
// with bounded buffers, errors stay the same, and a mistake in parsing is reported to
// otel.Handle and to nobody else. An answer that is closed before its end is an aborted
// call. Attempts of one request are one call. A count that the provider did not send is
// missing, and never zero.
//
// # Which session
//
// The first that applies:
//
//  1. a turn in the context that the agent began with package agenttrace: the turn then has
//     the calls, and the tools;
//  2. [WithSession], the baggage member session.id or gen_ai.conversation.id,
//     [Options].SessionKey;
//  3. the result of a tool call that a conversation waits for;
//  4. previous_response_id or conversation, of the Responses API;
//  5. the history in the request: it continues the conversation of which it has the longest tail
//     of messages. When one goes on there a second time, that is a fork;
//  6. a new session.
//
// Requests to different hosts or with different credentials never share a session by rules 3 to
// 5. Conversations that are alike so far are told apart by their contexts (the same one, or one of
// the same trace); where there is nothing to tell them apart, the turn is marked as ambiguous.
//
// A new conversation that begins while a tool call waits is that of a sub-agent if its text is in the
// call's input, or if it has the name or context of the call's conversation, tools, and another system
// prompt. Its session is a child of the other one.
//
// A server with many users does best to name the session, by [WithSession] or SessionKey.
//
// # Turns and tools
//
// A turn begins with the user's text and ends with an answer without tool calls. A tool call
// lasts from the end of the answer that requested it to the request with its result, which
// is marked as inferred; an agent that reports the call itself, under the same id, has its
// exact times. Text of the user beside results of tools is a data-steering part of the turn.
// A request that is made otherwise than those of the conversation, and for a title or a
// summary of it, is a call beside it, also when the turn has ended: it has a span, and its usage
// counts. A summary that a later request begins with is a compaction.
//
// A turn that nobody goes on with ends after [Options].IdleTimeout, or with
// [Transport.Close].
package modelhttp
