//go:build !unix

package cli

// inheritedDescriptor reports whether the process was started with the descriptor open.
func inheritedDescriptor(int) bool { return false }
