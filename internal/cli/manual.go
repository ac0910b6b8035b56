package cli

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/replay"
	"github.com/agenttrace/agenttrace/session/store"
)

// The manual has a section for each command: how it is used, a line about it, all about it, examples and flags. A
// section in parentheses is a part of others.
//
//	# ls
//	List sessions, newest first
//
//	List sessions, newest first. By default …
//
//	Examples:
//	  agenttrace ls --limit 10
//
//	Flags:
//	  --limit -n 50: maximum number of sessions
//	  (filters)
//
//go:embed manual.txt
var manualText string

// section is a section of the manual.
type section struct {
	use, short, long, example string
	flags                     []string
}

// filled fills in what the code knows.
var filled = sync.OnceValue(func() *strings.Replacer {
	exported, read := formats.Names((*formats.Format).Written), formats.Names((*formats.Format).Reads)
	return strings.NewReplacer(
		"{{exports}}", formatList(10, (*formats.Format).Written, func(f *formats.Format) string { return f.Exported }),
		"{{export formats}}", either(exported), "{{export}}", exported[0],
		"{{imports}}", formatList(11, (*formats.Format).Reads, func(f *formats.Format) string { return f.Imported }),
		"{{import formats}}", either(read), "{{extensions}}", importer.Extensions(),
		"{{requests}}", replayFormats(), "{{request formats}}", either(replay.Names()),
		"{{calls}}", strconv.Itoa(replay.DefaultMaxCalls), "{{litellm}}", price.Sources()[1].URL,
		"{{sorts}}", strings.Join(store.SessionSorts(), ", "),
	)
})

// sections are the sections of the manual, in its order.
var sections = sync.OnceValue(func() []string { return strings.Split(manualText, "\n# ") })

// manual returns the section of a command.
func manual(name string) (s section) {
	s.use = name[strings.LastIndexByte(name, ' ')+1:]
	var text string
	for _, section := range sections() { // a command comes before those whose names begin with its own
		if rest, found := strings.CutPrefix(section, name); found && (rest[0] == '\n' || rest[0] == ' ') {
			var arguments string
			arguments, text, _ = strings.Cut(rest, "\n")
			s.use += arguments
			break
		}
	}
	for _, part := range []string{"(filters)", "(prices)"} {
		if strings.Contains(text, "{{"+part+"}}") {
			text = strings.ReplaceAll(text, "{{"+part+"}}", manual(part).long)
		}
	}
	if strings.Contains(text, "{{") {
		text = filled().Replace(text)
	}
	s.short, text, _ = strings.Cut(text, "\n")
	text, flags, _ := strings.Cut("\n"+text, "\n\nFlags:\n")
	s.long, s.example, _ = strings.Cut(strings.Trim(text, "\n"), "\n\nExamples:\n")
	s.flags = strings.Split(strings.TrimSpace(flags), "\n")
	return s
}

// described is a command as the manual describes it. Each of its flags sets the field of its name in into, a pointer to
// a struct, or in what that embeds. A shell completes the sessions that the command takes, and values of flags.
func described(name string, into any, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	s := manual(name)
	cmd := &cobra.Command{Use: s.use, Short: s.short, Long: s.long, Example: s.example, Args: args,
		PreRunE: checkFlags, RunE: run}
	switch {
	case name == "search":
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	case strings.Contains(s.use, " ID") || strings.Contains(s.use, "[ID") || name == "store check" || name == "diff":
		cmd.ValidArgsFunction = completeSessions
	}
	addFlags(cmd.Flags(), name, into)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if values := completions[f.Name]; values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, values) // it has the flag
		}
	})
	_ = cmd.MarkFlagFilename("prices", "json") // an error is that it has no such flag
	return cmd
}

// checkFlags refuses flags that exclude each other, those without the one that they need, and numbers that are too
// small.
func checkFlags(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, mark := range f.Annotations["marks"] {
			switch other := mark[1:]; {
			case mark[0] == '>':
				least, _ := strconv.Atoi(other)
				if n, invalid := strconv.Atoi(f.Value.String()); invalid == nil && n <= least {
					err = usagef("--%s is %d; use a number above %d", f.Name, n, least)
				}
			case mark[0] == '!' && cmd.Flags().Changed(other):
				err = usagef("--%s and --%s exclude each other; use one of them", other, f.Name)
			case mark[0] == '@' && !cmd.Flags().Changed(other):
				err = usagef("--%s needs --%s; add that, or leave --%[1]s out", f.Name, other)
			}
		}
	})
	return err
}

// shared are what flags set that many commands have. Who needs their values asks for them by name.
type shared struct {
	Store, Remote, Prices string
	IdleTimeout           time.Duration
}

// addFlags adds the flags of a section of the manual, except for those that are there. A line of them names another
// section, or a flag, its short form and its default, flags that it excludes (!) and needs (@), and what it is greater
// than (>).
func addFlags(f *pflag.FlagSet, section string, into any) {
	for _, line := range manual(section).flags {
		head, usage, _ := strings.Cut(strings.TrimSpace(line), ": ")
		words := strings.Fields(strings.TrimPrefix(head, "--"))
		if len(words) == 0 || f.Lookup(words[0]) != nil {
			continue
		}
		name, short, value := words[0], "", ""
		var marks []string
		if strings.HasPrefix(name, "(") {
			addFlags(f, name, into)
			continue
		}
		for _, word := range words[1:] {
			switch word[0] {
			case '-':
				short = word[1:]
			case '!', '@', '>':
				marks = append(marks, word)
			default:
				value = word
			}
		}
		switch p := fieldOf(name, into, new(shared)).(type) {
		case *bool:
			f.BoolVarP(p, name, short, false, usage)
		case *int:
			n, _ := strconv.Atoi(value) // nothing is 0
			f.IntVarP(p, name, short, n, usage)
		case *string:
			f.StringVarP(p, name, short, value, usage)
		case *[]string:
			f.StringArrayVarP(p, name, short, nil, usage)
		case *time.Duration:
			d, _ := time.ParseDuration(value)
			f.DurationVarP(p, name, short, d, usage)
		default:
			panic("the manual has a flag --" + name + " that sets nothing")
		}
		_ = f.SetAnnotation(name, "marks", marks) // there is one of that name
	}
}

// fieldOf is a pointer to the field of the first struct that has one of the flag's name, such as DryRun for dry-run.
func fieldOf(flag string, structs ...any) any {
	name := strings.ReplaceAll(flag, "-", "")
	for _, s := range structs {
		if s == nil {
			continue
		}
		field := reflect.ValueOf(s).Elem().FieldByNameFunc(func(n string) bool {
			return unicode.IsUpper(rune(n[0])) && strings.EqualFold(n, name)
		})
		if field.IsValid() {
			return field.Addr().Interface()
		}
	}
	return nil
}

// entry matches the beginning of a line that is in columns: what is in the first, and the space up to the second.
var entry = lazy.Regexp(`^ +\S+(?: \S+)* {2,}`)

// wrapped lays help out in lines of that many columns. The lines of a paragraph are joined, and so are those of the
// second column of a list. Examples stay as they are, to be copied.
func wrapped(text string, width int) string {
	var b strings.Builder
	at, hang := 0, 0                // where the last line ends, and where its text goes on
	joins, examples := false, false // whether the next line may belong to it, and whether it is an example
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if !joins || line == "" || indent != hang {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			examples = line == "Examples:" || examples && line != ""
			lead := entry().FindString(line)
			joins = line != "" && !examples && (indent == 0 || lead != "")
			lead = cmp.Or(lead, line[:indent])
			b.WriteString(lead)
			at, line = utf8.RuneCountInString(lead), line[len(lead):]
			hang = min(at, width/2)
			if examples {
				b.WriteString(line)
				continue
			}
		}
		for i, word := range strings.Fields(line) {
			size := utf8.RuneCountInString(word)
			switch {
			case at > hang && at+1+size > width:
				b.WriteString("\n" + strings.Repeat(" ", hang))
				at = hang
			case at > hang || i > 0:
				b.WriteByte(' ')
				at++
			}
			b.WriteString(word)
			at += size
		}
	}
	return b.String() + "\n"
}

// formatList is a line for each of some formats.
func formatList(width int, which func(*formats.Format) bool, text func(*formats.Format) string) string {
	var b strings.Builder
	for _, f := range formats.Filter(which) {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, f.Name, text(f))
	}
	return b.String()
}

//go:embed man.tmpl
var manPage string

func newMan() *cobra.Command {
	return described("man", nil, exactly(1, "a directory"), func(cmd *cobra.Command, args []string) error {
		if err := makeDirectory(args[0]); err != nil {
			return err
		}
		root := cmd.Root()
		root.Long += "\n\n" + manual("exit-codes").long + "\n\n" + manual("environment").long
		nameOf := func(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }
		page := template.Must(template.New("").Funcs(template.FuncMap{
			"name": nameOf, "roff": roff, "upper": strings.ToUpper,
			"described": func(c *cobra.Command) string {
				text := columned().ReplaceAllString(roff(wrapped(cmp.Or(c.Long, c.Short), 72)), ".EX\n$0.EE\n")
				return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n\n", "\n.PP\n")
			},
		}).Parse(manPage))
		for commands := []*cobra.Command{root}; len(commands) > 0; commands = commands[1:] {
			c := commands[0]
			if !c.IsAvailableCommand() && c != root {
				continue
			}
			c.InitDefaultHelpFlag()
			commands = append(commands, c.Commands()...)
			var b bytes.Buffer
			if err := page.Execute(&b, c); err != nil {
				return err
			}
			path := filepath.Join(args[0], nameOf(c)+".1")
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				return unwritten(path, err)
			}
		}
		return nil
	})
}

// roff escapes a text: a backslash, a hyphen, which readers copy with options, and what would be a request in a line.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace("\n" + text)
	return strings.TrimPrefix(text, "\n")
}

// columned matches lines that are in columns.
var columned = lazy.Regexp(`(?m)(?:^ +\S.*\n)+`)

// What a shell is offered comes from the store, which is opened for reading. It is nothing if there is no store.

// completed is how many sessions, the newest ones, are looked at for what they have.
const completed = 100

// completions are what a shell is offered for flags of all commands, by the names of these.
var completions = map[string]cobra.CompletionFunc{
	"after": func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return completeSessions(cmd, nil, typed)
	},
	"agent":   completeValues(func(s *document.Item) []string { return []string{s.Agent} }),
	"model":   completeValues(func(s *document.Item) []string { return []string{session.Deref(s.Model).ModelID} }),
	"project": completeValues(func(s *document.Item) []string { return []string{s.WorkspaceRoot} }),
	"tag":     completeValues(tagsOf), "untag": completeValues(tagsOf), "turn": completeTurns,
	"by": oneOf(store.StatsKeys()), "sort": oneOf(store.SessionSorts()), "status": oneOf(document.Statuses()),
	"format": func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return oneOf(map[string][]string{
			"diff": diffFormats, "export": formats.Names((*formats.Format).Written),
			"import": formats.Names((*formats.Format).Reads), "replay": replay.Names(),
		}[cmd.Name()])(cmd, args, typed)
	},
}

func oneOf(values []string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

func tagsOf(s *document.Item) (tags []string) {
	for i := range s.Annotations {
		if n := &s.Annotations[i]; n.Kind == store.AnnotationTag {
			tags = append(tags, n.Name)
		}
	}
	return tags
}

// completing calls fn with the store, from which nothing is offered if it cannot be read.
func completing(cmd *cobra.Command, fn func(ctx context.Context, r document.Reader) ([]string, error)) []string {
	r, err := openStore(cmd)
	if err != nil {
		return nil
	}
	defer r.Close()
	values, _ := fn(cmd.Context(), document.Reader{Reader: r})
	return values
}

// completeValues offers what sessions have, each once and sorted.
func completeValues(of func(*document.Item) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		values := completing(cmd, func(ctx context.Context, r document.Reader) (values []string, err error) {
			q := everySession
			q.Limit = completed
			rows, err := r.Select(ctx, q, "")
			if err != nil {
				return nil, err
			}
			items, _, err := r.Briefly(ctx, rows)
			for i := range items {
				for _, v := range of(&items[i]) {
					if v != "" && v == document.OneLine(v) && strings.HasPrefix(v, typed) {
						values = append(values, v)
					}
				}
			}
			return values, err
		})
		slices.Sort(values)
		return slices.Compact(values), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTurns offers the numbers of the turns of the session that is named, with what the user asked.
func completeTurns(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	turns := completing(cmd, func(ctx context.Context, r document.Reader) (turns []string, err error) {
		if len(args) == 0 {
			return nil, nil
		}
		id, err := r.Resolve(ctx, args[0])
		if err != nil {
			return nil, err
		}
		doc, err := r.LoadAll(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, t := range doc.Turns {
			if number := strconv.Itoa(t.Number); strings.HasPrefix(number, typed) {
				turns = append(turns, cobra.CompletionWithDesc(number, document.OneLine(t.UserText())))
			}
		}
		return turns, nil
	})
	return turns, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeSessions offers the newest sessions' ids to the shell, of all sessions once something is typed.
func completeSessions(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	takes := map[string]int{"diff": 2, "check": math.MaxInt, "edit": math.MaxInt, "export": math.MaxInt, "rm": math.MaxInt}
	switch {
	case cmd.Name() == "show" && len(args) == 1:
		return completeTurns(cmd, args, typed)
	case len(args) >= max(takes[cmd.Name()], 1):
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := completing(cmd, func(ctx context.Context, r document.Reader) (names []string, err error) {
		if strings.HasPrefix("last", typed) {
			names = append(names, cobra.CompletionWithDesc("last", "the newest session"))
		}
		q := everySession
		q.Limit = completed
		if typed != "" {
			q.Limit = -1
		}
		for s, err := range r.Sessions(ctx, q) {
			if err != nil {
				return names, err
			}
			// What ls prints for an id has not the prefix that every session has.
			name := s.ID
			if bare, ours := strings.CutPrefix(s.ID, "ses_"); ours && typed != "" && strings.HasPrefix(bare, typed) {
				name = bare
			}
			if strings.HasPrefix(name, typed) {
				names = append(names, cobra.CompletionWithDesc(document.Sanitize(name), document.Flat(s.Title)))
			}
		}
		return names, nil
	})
	if cmd.Name() == "check" { // it takes files too
		return names, cobra.ShellCompDirectiveDefault
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
