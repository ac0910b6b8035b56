package recorder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// ReplayTools returns a function that answers the messages of a client of the Model Context Protocol that call a tool
// with what a replay has recorded of it. address is the URL where the replay answers. It returns nil for a message that
// the server is to answer. It is safe for concurrent use.
func ReplayTools(address string) func(message []byte) []byte {
	return func(message []byte) []byte {
		var call struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if !bytes.Contains(message, []byte("tools/call")) || json.Unmarshal(message, &call) != nil ||
			call.Method != "tools/call" || call.ID == nil {
			return nil
		}
		result, err := AskReplay(address, call.Params)
		if err != nil { // a tool that is not to be executed is not, for that
			why, _ := json.Marshal("agenttrace replay: " + err.Error())
			return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%s}}`, call.ID, why)
		} else if result == nil {
			return nil
		}
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, bytes.TrimSpace(result))
	}
}

// AskReplay returns what a replay at an address answers to the request of a tool or of a shell, nil if that is to go on
// without it.
func AskReplay(address string, params []byte) ([]byte, error) {
	resp, err := http.Post(address, "application/json", bytes.NewReader(params))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return io.ReadAll(resp.Body)
	case http.StatusNoContent:
		return nil, nil
	}
	return nil, fmt.Errorf("%s", resp.Status)
}
