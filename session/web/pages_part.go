package web

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

// partPage is one part, whole.
type partPage struct {
	sessionPage
	Turn *document.Turn
	render.Part
	// Target is what annotations of the part are made at, and Annotations those that it has.
	Target      target
	Annotations []document.Annotation
	// Plain reports that the part is too large for a page.
	Plain bool
}

// maxPart is the size in bytes up to which a page shows a part as a whole.
const maxPart = 1 << 20

// row reads the row of the part in the address.
func (v *pages) row(r *http.Request) (*session.Part, error) {
	return v.partRow(r.Context(), element(r.PathValue("id")), element(r.PathValue("message")),
		element(r.PathValue("part")))
}

// part answers with one part.
func (v *pages) part(w http.ResponseWriter, r *http.Request) error {
	message, part := element(r.PathValue("message")), element(r.PathValue("part"))
	o, err := v.outline(r)
	if err != nil {
		return err
	}
	n := o.TurnOf(message)
	if n == 0 {
		return notFound("the session has no message %s that is in a turn", message)
	}
	doc, err := o.Range(r.Context(), n, n)
	if err != nil {
		return err
	}
	t := doc.Turns[0]
	p := partPage{sessionPage: sessionPage{Doc: doc, Tab: "turns", Of: t.Number}, Turn: t}
	for _, m := range t.Messages {
		for _, x := range m.Parts {
			if m.ID == message && x.ID == part {
				p.Part, p.Annotations = render.NewPart(document.Words{Full: true, Zone: v.Zone}.Block(x)), x.Annotations
				linkPart(&p.Part, doc, t, m)
			}
		}
	}
	if p.Part.Part == nil {
		return notFound("the session has no part %s of message %s", part, message)
	}
	span := spansOf(doc)[part]
	p.Span = v.spanURL(span.TraceID, span.SpanID)
	p.Target = target{doc.Session.ID, message, part, p.Self}
	size := len(p.Text)
	for _, s := range p.Sections {
		size += len(s.Text.Body)
	}
	p.Plain = size > maxPart
	return v.show(w, r, http.StatusOK, page{Title: "Part · " + title(doc)}, "part", p)
}

// raw answers with the row of a part as it is stored.
func (v *pages) raw(w http.ResponseWriter, r *http.Request) error {
	p, err := v.row(r)
	if err != nil {
		return err
	}
	sandbox(w)
	return write(w, r, http.StatusOK, "text/plain; charset=utf-8", append(p.AppendJSON(nil), '\n'))
}

// images are the types of pictures that a browser shows; all else is downloaded.
var images = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// blob answers with the content of a file part.
func (v *pages) blob(w http.ResponseWriter, r *http.Request) error {
	p, err := v.row(r)
	if err != nil {
		return err
	}
	var file struct {
		URL string `json:"url"`
	}
	_ = json.Unmarshal([]byte(p.DataJSON), &file)
	head, body, ok := strings.Cut(file.URL, ",")
	if !ok || !strings.HasPrefix(head, "data:") || !strings.HasSuffix(head, ";base64") {
		return notFound("the part has no content of a file")
	}
	content, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return notFound("the content of the file is damaged")
	}
	sandbox(w)
	mediaType := http.DetectContentType(content)
	if !slices.Contains(images, mediaType) {
		mediaType = "application/octet-stream"
		w.Header().Set("Content-Disposition", "attachment")
	}
	return write(w, r, http.StatusOK, mediaType, content)
}

// sandbox has a browser run nothing of an answer.
func sandbox(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
}
