package recorder

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// maxRequest bounds the telemetry of one request, as it is and unpacked.
const maxRequest = 64 << 20

// ServeHTTP stores the traces and the logs of an OTLP/HTTP request, in protobuf or JSON; metrics are received and
// forgotten. It answers when they are stored, or wait in memory for the store. A request that cannot be read is
// answered with 400, one whose telemetry is lost with 503.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	kind := req.Header.Get("Content-Type")
	w.Header().Set("Content-Type", kind)
	if strings.HasSuffix(req.URL.Path, "/v1/metrics") {
		return // an empty answer in either encoding says that nothing was refused
	}
	body, err := readRequest(w, req)
	if err != nil {
		http.Error(w, "read telemetry: "+err.Error(), http.StatusBadRequest)
		return
	}
	for b, err := range otlpfile.Read(bytes.NewReader(body), otlpfile.Options{}) {
		if err != nil {
			http.Error(w, "read telemetry: "+err.Error(), http.StatusBadRequest)
			return
		}
		for _, d := range []delivery{tracesOf(b.Traces), logsOf(b.Logs)} {
			lost, isLost := errors.AsType[*NotStoredError](r.export(req.Context(), d))
			if isLost && lost.Lost > 0 {
				http.Error(w, lost.Error(), http.StatusServiceUnavailable)
				return
			}
		}
	}
	if strings.Contains(kind, "json") {
		_, _ = io.WriteString(w, "{}")
	}
}

func readRequest(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	var r io.Reader = http.MaxBytesReader(w, req.Body, maxRequest)
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = io.LimitReader(z, maxRequest+1)
	}
	body, err := io.ReadAll(r)
	if err == nil && len(body) > maxRequest {
		err = errors.New("it is more than 64 MiB unpacked; export smaller batches")
	}
	return body, err
}
