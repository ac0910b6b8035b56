// Package mcptrace records the Model Context Protocol: middleware for clients and servers of
// github.com/modelcontextprotocol/go-sdk.
//
//	client.AddSendingMiddleware(mcptrace.Client(mcptrace.Options{}))
//	server.AddReceivingMiddleware(mcptrace.Server(mcptrace.Options{}))
//
// A tools/call in the context of a turn is the tool call that the model requested, with the exact times of its
// execution: the one whose id is in the context ([WithCallID]), or else the one that has the same name and
// arguments and has not begun, such as one that package modelhttp saw in the model's answer. If there is none, it
// is a new one. In the context of a tool call that the agent itself reports, it is part of that.
//
// Every other request, and a tools/call without a turn, is a CLIENT span as the conventions of OpenTelemetry
// describe it. The trace context goes to the server in the members traceparent, tracestate and baggage of _meta
// (SEP-414), where the server's middleware takes it from: a session that a tool of the server begins is then one of
// a sub-agent. See [Options].Foreign for servers and clients of others.
package mcptrace
