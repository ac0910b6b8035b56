package testscale

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// A port is free when it is found, and its server listens later, often in another process. So
// it must not be one that a system gives meanwhile to a connection, or to a server that leaves
// the choice to it: Linux gives those from 32768 on, macOS and Windows those from 49152 on.
const (
	firstPort = 10_000
	endPort   = 32_768
)

var ports = struct {
	sync.Mutex
	found map[int]bool
}{found: make(map[int]bool)}

// Port returns a TCP port on which nobody listens on any of the hosts, and that it did not return
// before in this process. Without hosts it is a port of 127.0.0.1. It is safe for concurrent use.
func Port(hosts ...string) (int, error) {
	if len(hosts) == 0 {
		hosts = []string{"127.0.0.1"}
	}
	ports.Lock()
	defer ports.Unlock()
	err := errors.New("none is left")
	for range 100 {
		port := firstPort + rand.IntN(endPort-firstPort)
		if ports.found[port] {
			continue
		}
		if err = listens(port, hosts); err == nil {
			ports.found[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// listens returns an error unless a server may listen on the port on each of the hosts.
func listens(port int, hosts []string) error {
	for _, host := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// MustAddress returns "127.0.0.1:" and a [Port], for tests. It panics when there is none.
func MustAddress() string {
	port, err := Port()
	if err != nil {
		panic(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
