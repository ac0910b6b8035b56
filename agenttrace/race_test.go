//go:build race

package agenttrace_test

const raceEnabled = true
