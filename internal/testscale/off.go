//go:build !long

package testscale

// Long reports whether the long suites run.
const Long = false
