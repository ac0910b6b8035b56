package codeagent

import (
	"os"
	"testing"
	"time"
)

func TestScratch(t *testing.T) {
	s := time.Now()
	res, err := Run(t.Context(), Config{Progress: os.Stdout})
	t.Log(res, err, time.Since(s))
}
