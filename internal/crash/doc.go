// Package crash holds no code but tests: they kill agents and collectors as they
// work, take sessions up again in another process, and look whether what was
// acknowledged is in the store, and nothing else is.
//
//	go test ./internal/crash -crashes 500
//
// The test binary is also the agent and the collector: see TestMain. An agent
// prints, on a pipe that outlives it, what it is about to send and what was
// acknowledged, what its model says before it is recorded, and the states that it
// saves. From that alone the tests know what the store may and must hold.
package crash
