//go:build !unix

package testscale

import "time"

var began = time.Now()

// CPUSeconds is how long this process has run.
func CPUSeconds() float64 { return time.Since(began).Seconds() }
