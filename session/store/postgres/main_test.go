//go:build long

package postgres_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleVariable makes the test binary be another process.
const roleVariable = "AGENTTRACE_POSTGRES_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role == "write" {
		if err := writeForever(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
