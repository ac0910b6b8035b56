//go:build !unix

package testscale

import "time"

var began = time.Now()

// processorSeconds is how long this process has run.
func processorSeconds() float64 { return time.Since(began).Seconds() }
