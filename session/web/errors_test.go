package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// A request that cannot be answered is told which parameter is wrong, and what to do.
func TestErrorsNameTheParameterAndARemedy(t *testing.T) {
	for _, remote := range []bool{false, true} {
		s := newSite(t, remote)
		const invalid = CodeInvalid
		for _, x := range []struct {
			path            string
			status          int
			code, parameter string
		}{
			{"nothing", 404, CodeNotFound, ""},
			{"sessions/", 404, CodeNotFound, ""},
			{"sessions/none", 404, "session-not-found", "id"},
			{"sessions/none/events", 404, "session-not-found", "id"},
			{"sessions/ses_/document", 409, "ambiguous", "id"},
			{"sessions?parent=none", 404, "session-not-found", "parent"},
			{"sessions/last/diff/none", 404, "session-not-found", "b"},
			{"sessions/last/turns/99", 404, CodeNotFound, "n"},
			{"sessions/last/turns/0", 400, invalid, "n"},
			{"sessions/last/turns/one/replay", 400, invalid, "n"},
			{"sessions/last/turns/99/replay", 404, CodeNotFound, "n"},
			{"sessions/last/document?from=99", 404, CodeNotFound, "from"},
			{"sessions/ses_1fa2bdc08/document?from=2&to=1", 400, invalid, "to"},
			{"sessions/last/parts/a/b", 404, CodeNotFound, "part"},
			{"prompts/abc", 404, CodeNotFound, "digest"},
			{"catalogs/abc", 404, CodeNotFound, "digest"},
			{"traces/last", 400, invalid, "trace"},
			{"traces/ffffffff", 404, "session-not-found", "trace"},
			{"sessions?unknown=1", 400, invalid, "unknown"},
			{"sessions?agent=a&agent=b", 400, invalid, "agent"},
			{"sessions?agent=", 400, invalid, "agent"},
			{"sessions?agent=%ff", 400, invalid, "agent"},
			{"sessions?agent=%00", 400, invalid, "agent"},
			{"sessions?agent=%zz", 400, invalid, ""},
			{"sessions?limit=0", 400, invalid, "limit"},
			{"sessions?limit=many", 400, invalid, "limit"},
			{"sessions?limit=99999999999999999999", 400, invalid, "limit"},
			{"sessions?sort=size", 400, invalid, "sort"},
			{"sessions?status=tired", 400, invalid, "status"},
			{"sessions?errors=maybe", 400, invalid, "errors"},
			{"sessions?since=yesterday", 400, invalid, "since"},
			{"sessions?score=%3E1", 400, invalid, "score"},
			{"sessions?cursor=abc", 400, invalid, "cursor"},
			{"stats?by=color", 400, invalid, "by"},
			{"stats?zone=Mars/Base", 400, invalid, "zone"},
			{"search", 400, invalid, "q"},
			{"search?q=(&regexp=1", 400, invalid, "q"},
			{"sessions/last/export?format=word", 400, invalid, "format"},
			{"sessions/last/export?full=true", 400, invalid, "full"},
			{"sessions/%ff", 400, invalid, "id"},
		} {
			s.fails(http.MethodGet, Prefix+x.path, "", x.status, x.code, x.parameter)
		}
		s.fails(http.MethodGet, Prefix+"events", "", 400, invalid, "Last-Event-ID", "Last-Event-ID", "7")
		s.fails(http.MethodPost, Prefix+"search", "{}", 405, "method-not-allowed", "")
		answer, _ := s.ask(http.MethodDelete, Prefix+"stats", "")
		if allow := answer.Header.Get("Allow"); allow != "GET, HEAD" {
			t.Errorf("stats allows %q", allow)
		}
	}
}

// A store that cannot be read now is asked again.
func TestAStoreThatIsClosedIsAProblem(t *testing.T) {
	s := newSite(t, false)
	s.store.Close()
	server := httptest.NewServer(New(Backend{Sessions: document.Reader{Reader: s.store}}, Options{}))
	defer server.Close()
	answer, err := http.Get(server.URL + Prefix + "sessions")
	testscale.Must(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q", answer.StatusCode, answer.Header.Get("Retry-After"))
	}
}

// An import branches on it, by which a transcript is merged with the telemetry of its session.
func TestAClientKnowsThatTelemetryReportsASession(t *testing.T) {
	if err := ProblemOf(fmt.Errorf("import: %w", store.ErrReported)); !errors.Is(err, store.ErrReported) {
		t.Errorf("%v is another error", err)
	}
}
