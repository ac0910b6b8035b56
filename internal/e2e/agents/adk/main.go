// Command adk is a program on ADK for Go, which sets up its telemetry from the environment, as its documentation says.
//
//	adk <JSON: the conversation>
//
// It is a module of its own so that what ADK requires is nobody else's burden.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model/gemini"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/telemetry"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/agenttool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
)

// conversation is what the user says in a session. A scout, if there is one, is an agent that the other asks by a tool.
type conversation struct {
	URL, Session, System, Scout string
	Prompts                     []string
}

// The input of the tools.
type (
	tide struct {
		Port string `json:"port"`
	}
	berth struct {
		Port  string `json:"port"`
		Hours int    `json:"hours"`
	}
	entry struct {
		Entry string `json:"entry"`
		Lines int    `json:"lines"`
	}
)

func main() {
	log.SetFlags(0)
	var c conversation
	if err := json.Unmarshal([]byte(strings.Join(os.Args[1:], "")), &c); err != nil {
		log.Fatal("usage: adk <JSON>: ", err)
	}
	if err := c.run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func (c *conversation) run(ctx context.Context) (err error) {
	providers, err := telemetry.New(ctx)
	if err != nil {
		return err
	}
	providers.SetGlobalOtelProviders()
	defer func() { err = errors.Join(err, providers.Shutdown(ctx)) }()
	ferris, err := c.agent(ctx)
	if err != nil {
		return err
	}
	r, err := runner.New(runner.Config{
		AppName: "harbour", Agent: ferris, SessionService: session.InMemoryService(), AutoCreateSession: true,
	})
	if err != nil {
		return err
	}
	for _, prompt := range c.Prompts {
		message := genai.NewContentFromText(prompt, genai.RoleUser)
		for _, err := range r.Run(ctx, "u_1", c.Session, message, agent.RunConfig{}) {
			if err != nil && !strings.Contains(err.Error(), "fire") {
				return err
			}
		}
	}
	return nil
}

func (c *conversation) agent(ctx context.Context) (agent.Agent, error) {
	model, err := gemini.NewModel(ctx, "gemini-pilot", &genai.ClientConfig{
		APIKey: "x", HTTPOptions: genai.HTTPOptions{BaseURL: c.URL},
	})
	if err != nil {
		return nil, err
	}
	tools, err := catalog()
	if err != nil {
		return nil, err
	}
	ferris := llmagent.Config{Name: "Ferris", Instruction: c.System, Model: model, Tools: tools}
	if c.Scout != "" {
		scout, err := llmagent.New(llmagent.Config{
			Name: "Scout", Description: "Looks at the sea", Instruction: c.Scout, Model: model, Tools: tools,
		})
		if err != nil {
			return nil, err
		}
		ferris.Tools = append(tools[:len(tools):len(tools)], agenttool.New(scout, nil))
	}
	return llmagent.New(ferris)
}

// catalog returns the tools of model.mjs.
func catalog() ([]tool.Tool, error) {
	var readings atomic.Int64
	getTide, err := functiontool.New(functiontool.Config{Name: "get_tide", Description: "Tide at a port"},
		func(_ agent.Context, in tide) (map[string]any, error) {
			return map[string]any{"port": in.Port, "reading": readings.Add(1)}, nil
		})
	bookBerth, err2 := functiontool.New(functiontool.Config{Name: "book_berth", Description: "Book a berth"},
		func(_ agent.Context, in berth) (string, error) { return "", fmt.Errorf("no berth free in %s", in.Port) })
	writeLog, err3 := functiontool.New(functiontool.Config{
		Name: "write_log", Description: "Write an entry, which is JSON, as some lines",
	}, func(_ agent.Context, in entry) (string, error) {
		lines := []string{"Logged:"}
		for i := range in.Lines {
			lines = append(lines, fmt.Sprintf("\t%d. %s", i+1, in.Entry))
		}
		return strings.Join(append(lines, "end of log"), "\n"), nil
	})
	return []tool.Tool{getTide, bookBerth, writeLog}, errors.Join(err, err2, err3)
}
