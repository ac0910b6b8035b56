// Package adktrace records agents that are built with google.golang.org/adk: one plugin.
//
//	recorded, err := adktrace.New(tracer, adktrace.Options{Agent: "coder"})
//	runner.New(runner.Config{PluginConfig: runner.PluginConfig{Plugins: []*plugin.Plugin{recorded, …}}, …})
//
// Each run of the runner is a turn of the session that has the id of ADK's session. The calls of
// models and tools in it, also those of sub-agents, are those of the turn.
//
// Make it the first plugin: a plugin that returns a value hides the callback from those after it.
package adktrace
