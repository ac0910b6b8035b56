// Package hostcheckextension is the collector extension "host_check": an HTTP server that listens on this machine's
// loopback answers only those who meant it. A page in a browser can have the name of its own server resolve to
// 127.0.0.1, and then reads from and writes to what listens there as if it were its own (DNS rebinding). Its requests
// name that server in the header Host, or in Origin, and are refused with 403.
package hostcheckextension
