//go:build long

package web

import (
	"testing"

	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// A client answers as the store behind the server does: it passes the suite of engines.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return served(t) })
}

// What other programs wrote is read through a client as it is in the store.
func TestSQL(t *testing.T) {
	storetest.RunSQL(t, func(t *testing.T) storetest.Store { return served(t) })
}
