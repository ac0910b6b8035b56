//go:build !linux

package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// errNoLandlock is why no system but Linux closes the network for a process.
var errNoLandlock = errors.New("only that of Linux can")

func canEnclose() error { return errNoLandlock }

func enclosed([]int, string, []string) (string, []string, error) { return "", nil, errNoLandlock }

func newEnclosed() *cobra.Command { return &cobra.Command{Use: "enclosed", Hidden: true} }
