// Package lazy delays work until its result is needed, because every command starts with what packages initialize.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles the expression once, when it is first called. It panics on a malformed one.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
