package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// What a user changes is there afterwards, and can be taken back.
func TestSessionsAreChanged(t *testing.T) {
	for _, remote := range []bool{false, true} {
		s := newSite(t, remote)
		const id = "sessions/lf-1"
		var item document.Item
		s.do(http.MethodPatch, id, `{"title":" A title ","archived":true}`, http.StatusOK, &item)
		if item.Title != "A title" || item.ArchivedAt == nil {
			t.Errorf("the session is %+v", item)
		}
		s.do(http.MethodPatch, id, `{"archived":false}`, http.StatusOK, &item)
		var list sessionList
		s.get("sessions?limit=500", &list)
		if !slices.ContainsFunc(list.Sessions, func(i document.Item) bool {
			return i.ID == "lf-1" && i.Title == "A title"
		}) {
			t.Error("the list has not what was changed")
		}

		var tag, score, note document.Annotation
		s.do(http.MethodPost, id+"/annotations", `{"kind":"tag","name":"good"}`, http.StatusCreated, &tag)
		s.do(http.MethodPost, id+"/annotations", `{"kind":"score","name":"quality","value":0.5,"turn":2,`+
			`"author":"bob"}`,
			http.StatusCreated, &score)
		s.do(http.MethodPost, id+"/annotations", `{"kind":"note","comment":"look here"}`, http.StatusCreated, &note)
		if tag.Author != "ann" || score.Author != "bob" || *score.Value != 0.5 || score.MessageID == "" ||
			note.Comment == "" {
			t.Errorf("the annotations are %+v, %+v and %+v", tag, score, note)
		}
		s.get("sessions?tag=good&score=quality%3C0.6", &list)
		if len(list.Sessions) != 1 {
			t.Errorf("%d sessions have the tag and the score", len(list.Sessions))
		}
		s.do(http.MethodDelete, id+"/annotations/"+tag.ID, "", http.StatusNoContent, nil)
		var left annotationList
		s.get(id+"/annotations", &left)
		if len(left.Annotations) != 2 {
			t.Errorf("%d annotations are left", len(left.Annotations))
		}

		var forked Forked
		s.do(http.MethodPost, id+"/fork", `{"turn":2,"title":"A fork"}`, http.StatusCreated, &forked)
		var of document.Document
		s.get("sessions/"+forked.SessionID+"/document", &of)
		if of.Session.Title != "A fork" || len(of.Turns) != 2 {
			t.Errorf("the fork %q has %d turns", of.Session.Title, len(of.Turns))
		}
		var rewound Rewound
		s.do(http.MethodPost, id+"/rewind", `{"turn":2}`, http.StatusOK, &rewound)
		if len(rewound.Messages) == 0 || rewound.Undone {
			t.Errorf("the rewind is %+v", rewound)
		}
		path := Prefix + id
		s.fails(http.MethodPost, path+"/rewind", `{"turn":3}`, http.StatusConflict, CodeHidden, "turn")
		s.fails(http.MethodPost, path+"/fork", `{"turn":3}`, http.StatusConflict, CodeHidden, "turn")
		s.do(http.MethodPost, id+"/unrewind", "", http.StatusOK, &rewound)
		if !rewound.Undone {
			t.Errorf("the rewind is %+v", rewound)
		}
		var gone removed
		s.do(http.MethodDelete, id+"?children=true", "", http.StatusOK, &gone)
		if !slices.Equal(gone.Deleted, []string{"lf-1", forked.SessionID}) {
			t.Errorf("%v were deleted", gone.Deleted)
		}
		s.fails(http.MethodGet, Prefix+id, "", http.StatusNotFound, "session-not-found", "id")
	}
}

func TestAnExportIsImported(t *testing.T) {
	for _, remote := range []bool{false, true} {
		s := newSite(t, remote)
		var before, after document.Document
		s.get("sessions/lf-1/document", &before)
		_, file := s.ask(http.MethodGet, Prefix+"sessions/lf-1/export", "")
		s.do(http.MethodDelete, "sessions/lf-1", "", http.StatusOK, nil)
		answer, content := s.ask(http.MethodPost, Prefix+"import", string(file), "Content-Type", "application/x-ndjson")
		if answer.StatusCode != http.StatusOK || !strings.Contains(string(content), `"sessions_added":1`) {
			t.Fatalf("status %d: %s", answer.StatusCode, content)
		}
		s.get("sessions/lf-1/document", &after)
		if len(after.Turns) == 0 || len(after.Turns) != len(before.Turns) {
			t.Errorf("%d turns of %d are back", len(after.Turns), len(before.Turns))
		}
		telemetry := testscale.ReadFile(t, "../ingest/testdata/captures/gemini-cli-0.61.0/prompt-shell/002-logs.json")
		_, content = s.ask(http.MethodPost, Prefix+"import?format=otlp", string(telemetry))
		if !strings.Contains(string(content), `"format":"otlp"`) ||
			!strings.Contains(string(content), `"file":"body"`) {
			t.Errorf("telemetry is imported as %s", content)
		}
	}
}

// A change that cannot be made names what is wrong with it.
func TestChangesThatAreRefused(t *testing.T) {
	s := newSite(t, false)
	const id, invalid = Prefix + "sessions/lf-1", CodeInvalid
	for _, x := range []struct {
		method, path, body string
		status             int
		code, parameter    string
	}{
		{http.MethodPatch, id, `{}`, 400, invalid, ""},
		{http.MethodPatch, id, ``, 415, "unsupported-media-type", "Content-Type"},
		{http.MethodPatch, id, `{"title":""}`, 400, invalid, "title"},
		{http.MethodPatch, id, `{"title":1}`, 400, invalid, "title"},
		{http.MethodPatch, id, `{"title":"` + strings.Repeat("x", 1_000_000) + `"}`, 400, invalid, "title"},
		{http.MethodPost, id + "/fork", `{"title":"` + strings.Repeat("x", 70_000) + `"}`, 400, invalid, "title"},
		{http.MethodPatch, id, `{"TITLE":"x"}`, 400, invalid, "TITLE"},
		{http.MethodPatch, id, `{"titel":"x"}`, 400, invalid, "titel"},
		{http.MethodPatch, id, `{"title":"x"}{}`, 400, invalid, ""},
		{http.MethodPatch, id, `[]`, 400, invalid, ""},
		{http.MethodPatch, id, `{"title":"` + strings.Repeat("x", maxBody) + `"}`, 413, "too-large", ""},
		{http.MethodPatch, Prefix + "sessions/none", `{"title":"x"}`, 404, "session-not-found", "id"},
		{http.MethodPost, id + "/annotations", `{"kind":"star"}`, 400, invalid, "kind"},
		{http.MethodPost, id + "/annotations", `{"kind":"tag"}`, 400, invalid, "name"},
		{http.MethodPost, id + "/annotations", `{"kind":"note"}`, 400, invalid, "comment"},
		{http.MethodPost, id + "/annotations", `{"kind":"score","name":"x"}`, 400, invalid, "value"},
		{http.MethodPost, id + "/annotations", `{"kind":"tag","name":"x","turn":99}`, 404, CodeNotFound, "turn"},
		{http.MethodPost, id + "/annotations", `{"kind":"tag","name":"x","turn":0}`, 404, CodeNotFound, "turn"},
		{http.MethodPost, id + "/annotations", `{"kind":"tag","name":"x","part_id":"y"}`, 400, invalid, "part_id"},
		{http.MethodDelete, id + "/annotations/none", ``, 404, CodeNotFound, "annotation"},
		{http.MethodPost, id + "/fork", `{"turn":99}`, 404, CodeNotFound, "turn"},
		{http.MethodPost, id + "/fork", `{"turn":1,"message":"m"}`, 400, invalid, "turn"},
		{http.MethodPost, id + "/rewind", `{"message":"none"}`, 400, invalid, "message"},
		{http.MethodPost, id + "/rewind", `{}`, 400, invalid, "turn"},
		{http.MethodPost, id + "/unrewind", ``, 409, CodeNoRewind, ""},
		{http.MethodPost, Prefix + "import", `nothing`, 422, "not-imported", ""},
		{http.MethodPost, Prefix + "import?format=word", `{}`, 400, invalid, "format"},
	} {
		s.fails(x.method, x.path, x.body, x.status, x.code, x.parameter)
	}
	reading := httptest.NewServer(New(Backend{Sessions: document.Reader{Reader: s.store}}, Options{}))
	defer reading.Close()
	(&site{t, reading, s.store}).fails(http.MethodPatch, id, `{"title":"x"}`, 403, "read-only", "")
}

// Many clients change sessions and read them at the same time.
func TestChangesAtTheSameTime(t *testing.T) {
	s := newSite(t, false)
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for k := range 5 {
				body := fmt.Sprintf(`{"kind":"tag","name":"tag %d %d"}`, i, k)
				if answer, content := s.ask(http.MethodPost, Prefix+"sessions/lf-1/annotations",
					body); answer.StatusCode != 201 {
					t.Errorf("status %d: %s", answer.StatusCode, content)
				}
				for _, path := range []string{"sessions?tag=tag+0+0", "sessions/lf-1/document", "stats"} {
					if answer, content := s.ask(http.MethodGet, Prefix+path, ""); answer.StatusCode != 200 {
						t.Errorf("status %d: %s", answer.StatusCode, content)
					}
				}
			}
		})
	}
	clients.Wait()
	var all annotationList
	s.get("sessions/lf-1/annotations", &all)
	if len(all.Annotations) != 40 {
		t.Errorf("%d annotations of 40 are there", len(all.Annotations))
	}
}

// A change of the store that fails is the store's error.
func TestAStoreThatRefusesIsAProblem(t *testing.T) {
	s := newSite(t, false)
	server := httptest.NewServer(New(Backend{
		Sessions: document.Reader{Reader: s.store},
		Change: func(context.Context, func(context.Context, store.Service) error) error {
			return context.DeadlineExceeded
		}}, Options{}))
	defer server.Close()
	answer, _ := (&site{t, server, s.store}).ask(http.MethodPatch, Prefix+"sessions/lf-1", `{"title":"x"}`)
	if answer.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("status %d", answer.StatusCode)
	}
}
