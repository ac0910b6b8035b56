// Command site renders the documentation into a directory: README.md, the Markdown files that it leads to, and their
// pictures. Pages are HTML with one stylesheet and no scripts. Links to other files of the repository lead to GitHub.
//
//	site REPOSITORY DIRECTORY
//
// A link to a file or heading that does not exist is an error, and so is a Markdown file below docs to which no page
// leads.
package main

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	chroma "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/yuin/goldmark"
	highlighting "github.com/yuin/goldmark-highlighting/v2"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

const repository = "https://github.com/agenttrace/agenttrace"

//go:embed page.html site.css
var layout embed.FS

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("site: name the repository and the directory to write")
	}
	n, err := write(os.DirFS(os.Args[1]), os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d pages in %s\n", n, os.Args[2])
}

// write renders the documentation and returns the number of pages.
func write(repo fs.FS, to string) (int, error) {
	s := &site{repo: repo, pages: map[string]*page{}, files: map[string][]byte{}}
	s.files["site.css"], _ = layout.ReadFile("site.css") // it is embedded
	s.read()
	if err := errors.Join(s.errs...); err != nil {
		return 0, err
	}
	tmpl := template.Must(template.ParseFS(layout, "page.html"))
	for _, p := range s.pages {
		var out bytes.Buffer
		if err := tmpl.Execute(&out, struct {
			*page
			Home           *page
			Up, Repository string
		}{p, s.pages["README.md"], up(p.File), repository}); err != nil {
			return 0, err
		}
		s.files[p.Address] = out.Bytes()
	}
	for name, b := range s.files {
		name = filepath.Join(to, name)
		if err := cmp.Or(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, b, 0o644)); err != nil {
			return 0, err
		}
	}
	return len(s.pages), nil
}

// site is the documentation of a repository.
type site struct {
	repo  fs.FS
	pages map[string]*page  // by their file in the repository
	files map[string][]byte // all others, by their address
	queue []string          // the files of pages, of which some have been read
	errs  []error
}

// page is a Markdown file, rendered.
type page struct {
	File, Address, Title string
	Body                 template.HTML
	Sections             []*section
	anchors              map[string]bool
	links                []link
}

// section is a heading of level 2. Those of README.md are the navigation, with the pages that their tables lead to.
type section struct {
	Title, Anchor string
	Pages         []link
}

// link leads from a page to a page.
type link struct{ Title, Address, file, anchor string }

// read renders the pages that README.md leads to, and checks their links.
func (s *site) read() {
	for s.queue = []string{"README.md"}; len(s.queue) > 0; {
		file := s.queue[0]
		s.queue = s.queue[1:]
		if s.pages[file] == nil {
			s.render(file)
		}
	}
	for _, p := range s.pages {
		for _, l := range p.links {
			if l.anchor != "" && !s.pages[l.file].anchors[l.anchor] {
				s.fail("%s: %s has no heading #%s", p.File, l.file, l.anchor)
			}
		}
	}
	_ = fs.WalkDir(s.repo, "docs", func(file string, _ fs.DirEntry, err error) error {
		if err == nil && path.Ext(file) == ".md" && s.pages[file] == nil {
			s.fail("%s: no page leads to it", file)
		}
		return nil
	})
}

func (s *site) fail(format string, args ...any) { s.errs = append(s.errs, fmt.Errorf(format, args...)) }

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM,
	highlighting.NewHighlighting(highlighting.WithFormatOptions(chroma.WithClasses(true)))),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// scrollable has keys reach what may be wider than a screen.
var scrollable = strings.NewReplacer("<pre", `<pre tabindex="0"`,
	"<table>", `<div tabindex="0"><table>`, "</table>", "</table></div>")

// render renders a file, which becomes a page.
func (s *site) render(file string) {
	source, err := fs.ReadFile(s.repo, file)
	if err != nil {
		s.fail("%w", err)
	}
	p := &page{File: file, Address: address(file), anchors: map[string]bool{}}
	s.pages[file] = p
	doc := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(p))))
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 1 && p.Title == "" {
				p.Title = plain(n, source)
			} else if n.Level == 2 {
				id, _ := n.AttributeString("id")
				p.Sections = append(p.Sections, &section{Title: plain(n, source), Anchor: fmt.Sprintf("%s", id)})
			}
		case *ast.Image:
			n.Destination = []byte(s.resolve(p, string(n.Destination)).Address)
		case *ast.Link:
			l := s.resolve(p, string(n.Destination))
			n.Destination = []byte(l.Address)
			if _, ok := n.Parent().(*extast.TableCell); ok && file == "README.md" {
				in := p.Sections[len(p.Sections)-1]
				in.Pages = append(in.Pages, link{Title: plain(n, source), Address: l.Address})
			}
		}
		return ast.WalkContinue, nil
	})
	var out bytes.Buffer
	if err := markdown.Renderer().Render(&out, source, doc); err != nil {
		s.fail("%s: %w", file, err)
	}
	p.Body = template.HTML(scrollable.Replace(out.String()))
}

// resolve returns where a destination in a page leads on the site, and has what it leads to become part of the site.
func (s *site) resolve(p *page, dest string) link {
	u, err := url.Parse(dest)
	if err != nil || u.IsAbs() {
		return link{Address: dest}
	}
	file := path.Join(path.Dir(p.File), cmp.Or(u.Path, path.Base(p.File)))
	if _, err := fs.Stat(s.repo, file); err != nil {
		s.fail("%s: there is no file %s", p.File, file)
		return link{}
	}
	switch path.Ext(file) {
	case ".md":
		s.queue = append(s.queue, file)
		u.Path = up(p.File) + address(file)
		p.links = append(p.links, link{file: file, anchor: u.Fragment})
		return link{Address: u.String()}
	case ".png", ".webp":
		s.files[file], _ = fs.ReadFile(s.repo, file)
		return link{Address: up(p.File) + file}
	}
	return link{Address: repository + "/blob/main/" + file}
}

// address is where the page of a file is on the site.
func address(file string) string {
	if dir, ok := strings.CutSuffix(file, "README.md"); ok {
		return dir + "index.html"
	}
	return strings.TrimSuffix(file, ".md") + ".html"
}

// up leads from the page of a file to the top of the site.
func up(file string) string { return strings.Repeat("../", strings.Count(file, "/")) }

// plain is the text of a node without its markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// Generate returns the anchor of a heading as GitHub makes it.
func (p *page) Generate(heading []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.In(r, unicode.L, unicode.M, unicode.N):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(heading)))
	unique := id
	for i := 1; p.anchors[unique]; i++ {
		unique = fmt.Sprintf("%s-%d", id, i)
	}
	p.anchors[unique] = true
	return []byte(unique)
}

// Put does nothing: no heading states its anchor.
func (p *page) Put([]byte) {}
