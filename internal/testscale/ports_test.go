package testscale_test

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// While a server starts, others of this machine listen and connect on ports that the system picks.
func TestAPortIsNotOneThatTheSystemPicks(t *testing.T) {
	seen := make(map[int]bool)
	for range 1000 {
		port, err := testscale.Port()
		if err != nil {
			t.Fatal(err)
		}
		if port >= 32768 || port < 1024 {
			t.Fatalf("port %d, and Linux picks from 32768 on", port)
		}
		if seen[port] {
			t.Fatalf("port %d was found twice", port)
		}
		seen[port] = true
	}
}

func TestAPortIsFreeOnAllHosts(t *testing.T) {
	for range 20 {
		hosts := []string{"127.0.0.1", "::1"}
		port, err := testscale.Port(hosts...)
		if err != nil && strings.Contains(err.Error(), "cannot assign requested address") {
			t.Skip("this machine has no IPv6")
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range hosts {
			l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		}
	}
}

func TestNoPortIsAnErrorThatNamesTheCause(t *testing.T) {
	_, err := testscale.Port("192.0.2.1") // a host of documents, which no machine is
	if err == nil || strings.Count(err.Error(), "192.0.2.1") != 1 {
		t.Errorf("the error is %v, want one that names the host", err)
	}
}
