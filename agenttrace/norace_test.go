//go:build !race

package agenttrace_test

const raceEnabled = false
