package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/websocket"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/internal/modelapi/answers"
)

// upgrade answers the requests that come over a WebSocket of the Responses API. Where a live model answers, too, it
// refuses, and clients fall back to HTTP: one socket has one server.
func (p *Player) upgrade(w http.ResponseWriter, r *http.Request) {
	if p.Live != nil || !strings.HasSuffix(r.URL.Path, "/responses") {
		http.Error(w, "agenttrace replay answers this by HTTP", http.StatusUpgradeRequired)
		return
	}
	websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol = c.Protocol[:min(len(c.Protocol), 1)] // the first that the client offers
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			var message []byte
			for {
				var frame string
				if websocket.Message.Receive(ws, &frame) != nil {
					return // the client has gone
				}
				if message = append(message, frame...); !json.Valid(message) && len(message) < maxReply {
					continue // a fragment
				}
				if p.asked(ws, message) != nil {
					return
				}
				message = nil
			}
		},
	}.ServeHTTP(w, r)
}

// asked answers a message of a client, each event as a message.
func (p *Player) asked(ws io.Writer, message []byte) error {
	var event struct {
		Type     string
		Generate *bool
	}
	request := modelapi.Responses.Request(message)
	if json.Unmarshal(message, &event) != nil || event.Type != "response.create" || request == nil {
		return nil
	}
	// A request that nothing is to be generated for only prepares the server.
	step, id := &answers.Step{Model: request.Model}, "prepared"
	if event.Generate == nil || *event.Generate {
		next, n := p.answer(request, message)
		step, id = next, fmt.Sprintf("%04d", n)
	}
	_, chunks := answers.Named("responses").Chunks(step, "replay_"+p.run+"_"+id, true)
	for _, c := range chunks {
		_, data, _ := bytes.Cut(c, []byte("data: "))
		if _, err := ws.Write(bytes.TrimSpace(data)); err != nil {
			return err
		}
	}
	return nil
}
