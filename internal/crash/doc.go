// Package crash contains tests only. They kill agents and collectors at work, resume
// sessions in another process, and check that the store has everything that was
// acknowledged, and nothing else.
//
//	go test ./internal/crash -crashes 500
//
// The test binary is also the agent and the collector: see TestMain. An agent prints, on
// a pipe that outlives it, what it is about to send, what was acknowledged, the model's
// output before it is recorded, and the states that it saves. The tests derive what the
// store may and must contain from this output alone.
package crash
