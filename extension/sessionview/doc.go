// Package sessionview is the collector extension "session_view": a server of the sessions that the exporter "session"
// stores. Commands of agenttrace ask it to change a session while the collector runs, and read sessions from other
// machines.
//
// It has two listeners: one of HTTP, with the TLS, the authenticator and the limits of confighttp, and a Unix socket
// beside the store, which is for the user alone and which the store's lock file names.
package sessionview
