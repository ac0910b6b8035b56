// Package alltrace records the model calls of a program that is built with orchestrion, without a
// change to its code: each client of Anthropic, OpenAI, Google and AWS that the program or one of
// its dependencies makes gets package modelhttp.
//
//	go get github.com/DataDog/orchestrion github.com/agenttrace/agenttrace/contrib/all
//	orchestrion go build ./...
//
// The program has a file orchestrion.tool.go beside its go.mod:
//
//	//go:build tools
//
//	package main
//
//	import (
//		_ "github.com/DataDog/orchestrion"
//		_ "github.com/agenttrace/agenttrace/contrib/all" // integration
//	)
//
// The sessions go to the global tracer provider. [SetTransport] replaces what records them.
package alltrace
