package render

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
)

//go:embed blocks.html transcript.html diff.html style.css
var files embed.FS

//go:embed style.css
var style string

// Style is the style of all pages, for a server that has parts of them in pages of its own.
func Style() string { return style }

// policy allows the style of the pages by its checksum, the images that are in the pages, and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'"
}()

var htmlTemplates = template.Must(Templates().Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(style) },
	"policy": func() string { return policy },
}).ParseFS(files, "transcript.html", "diff.html"))

// Templates has the templates of messages, for a server that has them in pages of its own: "message" shows a [Message],
// "block" a [Part], "images" its images and "runs" what [Runs] returns.
func Templates() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"join": func(all []string) string { return document.Join(all...) },
		"line": document.Line, "plain": document.Sanitize, "rich": Rich, "runs": Runs, "brief": document.Brief,
		"bytes": func(s string) string { return document.Bytes(int64(len(s))) },
		"cut":   func(s string) string { left, _, _ := strings.Cut(s, ";"); return left },
	}).ParseFS(files, "blocks.html"))
}

// Turn is a turn as the templates show it.
type Turn struct {
	document.TurnWords
	Messages []Message
}

// Message is a message as the templates show it. What is about other pages is empty in a file.
type Message struct {
	document.MessageWords
	Parts []Part
	// ElementID is the id of its element, ErrorIDs are those of its errors, Time is when it began as in ISO 8601, and
	// Span the address of its span.
	ElementID, Time, Span string
	ErrorIDs              []string
}

// Part is a part of a message as the templates show it. What is about other pages is empty in a file.
type Part struct {
	document.Block
	// Open reports that a call is not folded.
	Open bool
	// Gist is the head of reasoning, Edit what a call replaces in a file, nil of others.
	Gist   string
	Edit   *Edit
	Images []Image
	// ElementID is the id of its element, Self the address of its page, Next that of the next call or answer that failed
	// or was denied if this one did, and Span that of its span.
	ElementID, Self, Next, Span string
	// Long is the head of a text that is too long to be shown as a whole, "" of others.
	Long string
	// Child is the session that a call started, and ChildLink the address of its page.
	Child     *document.Child
	ChildLink string
}

// Image is a picture. Link reports that its address shows it alone.
type Image struct {
	Source template.URL
	Alt    string
	Link   bool
}

// NewTurn returns a turn for the templates, in words.
func NewTurn(words document.Words, t *document.Turn) Turn {
	turn := Turn{TurnWords: words.Turn(t)}
	turn.Messages = messages(turn.TurnWords.Messages)
	return turn
}

func messages(words []document.MessageWords) (all []Message) {
	for _, m := range words {
		message := Message{MessageWords: m}
		for _, b := range m.Blocks {
			message.Parts = append(message.Parts, NewPart(b))
		}
		all = append(all, message)
	}
	return all
}

// Messages returns messages for the templates, in words.
func Messages(words document.Words, all []*document.Message) []Message {
	return messages(words.Messages(all))
}

const maxGist = 160

// NewPart returns a part for the templates.
func NewPart(b document.Block) Part {
	p := Part{Block: b}
	if b.Kind == document.BlockReasoning {
		p.Gist = document.Head(strings.TrimSpace(b.Text), maxGist)
	}
	if b.Kind == document.BlockTool {
		p.Open = b.Outcome != document.OutcomeOK && b.Outcome != document.OutcomeLost
	}
	if b.Part != nil && b.Part.Tool != nil {
		if p.Edit = edits(b.Part.Tool); p.Edit != nil {
			p.Open = p.Open || p.Edit.Added+p.Edit.Removed <= openEdit
		}
	}
	for _, m := range b.Images {
		p.Images = append(p.Images, Image{Source: template.URL(m.URL()), Alt: m.String()}) // of a known type, in base64
	}
	return p
}

// HTML writes the transcript in HTML. The same document gives the same bytes.
func HTML(w io.Writer, d *document.Document, o document.Words) error {
	page := struct {
		document.SessionWords
		Turns  []Turn
		Queued []Message
	}{SessionWords: o.Session(d)}
	for _, t := range page.SessionWords.Turns {
		page.Turns = append(page.Turns, Turn{t, messages(t.Messages)})
	}
	page.Queued = messages(page.SessionWords.Queued)
	if err := htmlTemplates.ExecuteTemplate(w, "transcript", page); err != nil {
		return fmt.Errorf("write session %s: %w", d.Session.ID, err)
	}
	return nil
}
