//go:build !linux

package recorder

import "os/exec"

func dieTogether(*exec.Cmd) {}
