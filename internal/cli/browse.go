package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

// browse shows the sessions of the store on the whole terminal until the user quits. It returns errNoBrowser if there
// is no terminal or no store.
func browse(cmd *cobra.Command) error {
	in, isFile := cmd.InOrStdin().(*os.File)
	out, _ := cmd.OutOrStdout().(*os.File)
	if !isFile || !isTerminal(in) || !isTerminal(out) || os.Getenv("TERM") == "dumb" {
		return errNoBrowser
	}
	err := reading(cmd, func(ctx context.Context, r document.Reader, p *prices) error {
		f, _, err := follow(cmd)
		if err != nil {
			return err
		}
		defer f.Close()
		b := &browser{ctx: ctx, r: r, follower: f, options: p.terminal(cmd)}
		if _, b.height, err = term.GetSize(out.Fd()); err != nil {
			return err
		}
		b.load()
		_, err = tea.NewProgram(b, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out)).Run()
		return err
	})
	if missing, ok := errors.AsType[storeError](err); ok && missing.hint == noStoreHint {
		return errNoBrowser
	}
	return err
}

var errNoBrowser = errors.New("sessions are not browsed here")

const (
	browsed      = 200 // sessions in the list
	pollInterval = 500 * time.Millisecond
)

// browser is the list of sessions, or one of them that is open. It reads the store in Update, so that each key finds
// what the one before it showed.
type browser struct {
	ctx      context.Context
	r        document.Reader
	follower store.Follower
	options  render.Options
	height   int

	items []document.Item
	open  string // id of the session that is shown; "" is the list
	lines []string
	at    int // the item that is selected, or the first line that is shown of an open session
	left  int // the item that was selected when the session was opened

	text     string // that the sessions of the list have
	typed    string // after a slash, which is shown with it; "" if none is typed
	found    string // that was searched in the open session
	failures bool   // shows only what failed or was denied, or sessions with errors
	follows  bool
	note     string
}

// pollMsg asks to look for changes.
type pollMsg struct{}

func (b *browser) Init() tea.Cmd {
	return tea.Tick(pollInterval, func(time.Time) tea.Msg { return pollMsg{} })
}

func (b *browser) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if msg.Width > 0 && (msg.Width != b.options.Width || msg.Height != b.height) {
			b.options.Width, b.height = msg.Width, msg.Height
			b.load()
		}
	case pollMsg:
		if !b.follows {
			return b, b.Init()
		}
		if _, change, err := b.follower.Poll(b.ctx); err != nil {
			b.note = document.OneLine(err.Error())
		} else if change != store.Unchanged {
			b.load()
			if b.open != "" {
				b.at = b.last()
			}
		}
		return b, b.Init()
	case tea.KeyPressMsg:
		if b.note = ""; b.typed != "" {
			b.typing(msg)
			return b, nil
		}
		return b, b.key(msg.String())
	}
	return b, nil
}

// key does what a key stands for.
func (b *browser) key(name string) tea.Cmd {
	switch name {
	case "ctrl+c":
		return tea.Quit
	case "q", "esc", "left", "h":
		if b.open == "" && name == "q" {
			return tea.Quit
		}
		if b.open != "" {
			b.at = b.left
		}
		b.open, b.failures, b.found, b.text = "", false, "", ""
		b.load()
	case "enter", "right", "l":
		if b.open == "" && len(b.items) > 0 {
			b.open, b.failures, b.left, b.at = b.items[b.at].ID, false, b.at, 0
			b.load()
		}
	case "up", "k":
		b.at--
	case "down", "j":
		b.at++
	case "pgup", "b":
		b.at -= b.room()
	case "pgdown", "space":
		b.at += b.room()
	case "home", "g":
		b.at = 0
	case "end", "G":
		b.at = b.last()
	case "/":
		b.typed = "/"
	case "n":
		b.next()
	case "e":
		b.failures = !b.failures
		b.at = 0
		b.load()
	case "f":
		b.follows = !b.follows
	}
	b.at = max(min(b.at, b.last()), 0)
	return nil
}

// typing takes a key of the text to search for.
func (b *browser) typing(key tea.KeyPressMsg) {
	switch name := key.String(); name {
	case "esc", "ctrl+c":
		b.typed = ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(b.typed)
		b.typed = b.typed[:len(b.typed)-size]
	case "enter":
		text := b.typed[1:]
		if b.typed = ""; b.open != "" {
			b.found = text
			b.next()
			return
		}
		b.text, b.at = text, 0
		b.load()
	default:
		b.typed += key.Text
	}
}

// next goes to the next line that has what was searched for, after the last one at the first.
func (b *browser) next() {
	if b.found == "" || b.open == "" {
		return
	}
	has := func(line string) bool {
		return strings.Contains(strings.ToLower(ansi.Strip(line)), strings.ToLower(b.found))
	}
	after := min(b.at+1, len(b.lines))
	if i := slices.IndexFunc(b.lines[after:], has); i >= 0 {
		b.at = after + i
	} else if i := slices.IndexFunc(b.lines, has); i >= 0 {
		b.at = i
	} else {
		b.note = "not found: " + document.OneLine(b.found)
	}
}

// room is how many lines or sessions there is room for, besides the line at the bottom and the head of the list.
func (b *browser) room() int {
	if b.open == "" {
		return max(b.height-2, 1)
	}
	return max(b.height-1, 1)
}

// last is the greatest position: the last session, or the line from which the end is shown.
func (b *browser) last() int {
	if b.open == "" {
		return max(len(b.items)-1, 0)
	}
	return max(len(b.lines)-b.room(), 0)
}

// load reads what is shown. After an error it stays what it was.
func (b *browser) load() {
	var text strings.Builder
	print := b.printList
	if b.open != "" {
		print = b.printSession
	}
	if err := print(&text); err != nil {
		b.note = document.OneLine(err.Error())
		return
	}
	b.lines = strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	b.at = max(min(b.at, b.last()), 0)
}

func (b *browser) printSession(w io.Writer) error {
	doc, err := b.r.LoadAll(b.ctx, b.open)
	if err != nil {
		return err
	}
	if b.failures {
		return render.Errors(w, doc, b.options)
	}
	return render.Document(w, doc, b.options)
}

func (b *browser) printList(w io.Writer) error {
	q := store.SessionQuery{SessionFilter: store.SessionFilter{Text: b.text, Errors: b.failures}, Limit: browsed}
	rows, err := b.r.Select(b.ctx, q, "")
	if err != nil {
		return err
	}
	items, _, err := b.r.Items(b.ctx, rows)
	if err != nil {
		return err
	}
	b.items = items
	abbreviate(b.ctx, b.r, items)
	return render.Sessions(w, items, b.options)
}

// View shows the lines from the first one, or the head of the list and the sessions around the selected one, which is
// marked.
func (b *browser) View() tea.View {
	var shown []string
	rows, first := b.lines, b.at
	if b.open == "" {
		shown, rows, first = b.lines[:1:1], slices.Clone(b.lines[1:]), min(b.at-b.room()/2, len(b.items)-b.room())
		if b.at < min(len(b.items), len(rows)) {
			row := ansi.Strip(rows[b.at])
			row += strings.Repeat(" ", max(b.options.Width-ansi.StringWidth(row), 0))
			rows[b.at] = ansi.NewStyle().Reverse(true).Styled(row)
		}
	}
	first = max(first, 0)
	shown = append(shown, rows[first:min(first+b.room(), len(rows))]...)
	for len(shown) < b.height-1 {
		shown = append(shown, "")
	}
	v := tea.NewView(strings.Join(append(shown, b.bottom()), "\n"))
	v.AltScreen = true
	return v
}

// bottom is the line that states what is typed, what went wrong, or which keys there are.
func (b *browser) bottom() string {
	text := "enter open · / search · e errors · f follow · q quit"
	switch {
	case b.typed != "":
		return document.Flat(b.typed) + "▏"
	case b.note != "":
		text = b.note
	case b.open != "":
		text = "/ search · n next · e failures · f follow · q back"
	}
	var on []string
	for label, is := range map[string]bool{"“" + b.text + "”": b.open == "" && b.text != "", "only errors": b.failures,
		"following": b.follows} {
		if is {
			on = append(on, label)
		}
	}
	slices.Sort(on)
	if len(on) > 0 {
		text = "[" + document.OneLine(strings.Join(on, ", ")) + "] " + text
	}
	return ansi.NewStyle().Faint().Styled(ansi.Truncate(text, b.options.Width, "…"))
}
