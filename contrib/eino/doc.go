// Package einotrace records agents that are built with github.com/cloudwego/eino: one handler for
// the callbacks of all components.
//
//	handler := einotrace.New(tracer, einotrace.Options{Agent: "coder"})
//	callbacks.AppendGlobalHandlers(handler) // or compose.WithCallbacks(handler) for one call
//
// The outermost component that runs, such as the graph of an agent, is a turn if it calls a chat model; it begins
// with the last message of the user in the model's first request. The calls of models and tools below it are those
// of the turn. A turn that the program began itself with package agenttrace has them instead.
//
// A streamed answer is recorded as the framework delivers it; a turn ends when the stream of its
// graph has been read to its end. [Handler.Close] waits for that.
package einotrace
