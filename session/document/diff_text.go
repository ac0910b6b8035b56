package document

import (
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session/store"
)

// edit is a run of elements that two sequences have in common, or that are in one of them only.
type edit struct {
	// a0 and a1, b0 and b1 are the ranges of the two sequences. Of a run in common
	// they are of one length; of another one at least is not empty.
	a0, a1, b0, b1 int
	same           bool
}

// maxEdits bounds the work of edits: what differs by more is shown as replaced. Memory grows with its square.
const maxEdits = 1500

// maxLine is how many bytes two lines have together up to which their words are compared.
const maxLine = 128 << 10

// edits finds the shortest script that makes b of a, after Myers, "An O(ND) Difference Algorithm": as many elements as
// can be are kept. Runs in common and others take turns. What a and b begin and end with alike is always kept.
func edits[T comparable](a, b []T) (script []edit) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	atA, atB := 0, 0
	add := func(toA, toB int, same bool) {
		switch n := len(script); {
		case toA == atA && toB == atB:
		case n > 0 && script[n-1].same == same:
			script[n-1].a1, script[n-1].b1 = toA, toB
		default:
			script = append(script, edit{atA, toA, atB, toB, same})
		}
		atA, atB = toA, toB
	}
	add(head, head, true)
	for _, snake := range snakes(a[head:len(a)-tail], b[head:len(b)-tail]) {
		add(head+snake[0], head+snake[1], false)
		add(head+snake[2], head+snake[3], true)
	}
	add(len(a)-tail, len(b)-tail, false)
	add(len(a), len(b), true)
	return script
}

// snakes are the runs that a and b have in common, in order, each as where it begins and
// ends in a and b; some are empty.
func snakes[T comparable](a, b []T) [][4]int {
	limit := min(len(a)+len(b), maxEdits)
	// far[limit+1+k] is how far in a one comes on diagonal k = x-y with d edits; trail keeps what each d began with.
	far := make([]int32, 2*limit+3)
	var trail [][]int32
	from := func(far []int32, d, k int) (diagonal, x int) { // where a step to diagonal k begins, and ends
		if k == -d || k != d && far[k-1+d+1] < far[k+1+d+1] {
			return k + 1, int(far[k+1+d+1])
		}
		return k - 1, int(far[k-1+d+1]) + 1
	}
	for d := 0; d <= limit; d++ {
		before := slices.Clone(far[limit-d : limit+3+d])
		trail = append(trail, before)
		for k := -d; k <= d; k += 2 {
			_, x := from(before, d, k)
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			far[limit+1+k] = int32(x)
			if x >= len(a) && x-k >= len(b) {
				return walkBack(trail, from, x, x-k)
			}
		}
	}
	return nil
}

// walkBack follows the trail of snakes from the ends of both sequences.
func walkBack(trail [][]int32, from func([]int32, int, int) (int, int), x, y int) (snakes [][4]int) {
	for d := len(trail) - 1; d > 0; d-- {
		diagonal, begin := from(trail[d], d, x-y)
		snakes = append(snakes, [4]int{begin, begin - (x - y), x, y})
		x = int(trail[d][diagonal+d+1])
		y = x - diagonal
	}
	slices.Reverse(snakes)
	return append([][4]int{{0, 0, x, y}}, snakes...)
}

// word matches a word, a run of spaces, or a single other character.
var word = lazy.Regexp(`(?s)[\pL\p{Nd}\pM_]+|[\s\pZ\x{85}]+|.`)

// words cuts text into what word matches. Their concatenation is the text.
func words(text string) []string { return word().FindAllString(text, -1) }

// DiffRow is a row of two texts side by side.
type DiffRow struct {
	// A and B are the line in pieces, which make it up; nil where only the other text has the line.
	A, B []Piece
	// Same reports that the two are one.
	Same bool
}

// Piece is a part of a line.
type Piece struct {
	Text string
	// Differs reports that the other text has something else in its place or, in the context of a hit, that it is what
	// was searched for.
	Differs bool
}

// Pieces are the context of a hit.
func Pieces(h *store.Hit) (all []Piece) {
	at := 0
	for _, m := range h.Marks {
		if m[0] < at || m[1] < m[0] || m[1] > len(h.Context) {
			continue
		}
		all = append(all, Piece{h.Context[at:m[0]], false}, Piece{h.Context[m[0]:m[1]], true})
		at = m[1]
	}
	return append(all, Piece{h.Context[at:], false})
}

// DiffTexts lays two texts beside each other, line by line. As many lines as can be are kept; in lines that replace
// each other the words that differ are marked, or the whole line where next to nothing is alike. Rows of one kind that
// follow each other are a run: of those that differ, the lines that have a partner come first.
//
// It sanitizes nothing. Two texts that differ in the newline at their end alone have no row that differs.
func DiffTexts(a, b string) []DiffRow {
	linesA, linesB := splitLines(a), splitLines(b)
	var rows []DiffRow
	for _, e := range edits(linesA, linesB) {
		for i := range max(e.a1-e.a0, e.b1-e.b0) {
			row := DiffRow{Same: e.same}
			inA, inB := e.a0+i < e.a1, e.b0+i < e.b1
			switch {
			case inA && inB && !e.same:
				row.A, row.B = comparePieces(linesA[e.a0+i], linesB[e.b0+i])
			case inA && inB:
				row.A, row.B = []Piece{{Text: linesA[e.a0+i]}}, []Piece{{Text: linesB[e.b0+i]}}
			case inA:
				row.A = []Piece{{linesA[e.a0+i], true}}
			default:
				row.B = []Piece{{linesB[e.b0+i], true}}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// Hunk is a run of rows that all differ, or are all the same.
type Hunk struct {
	Rows []DiffRow
	Same bool
	// Apart marks rows that are the same and not beside a difference.
	Apart bool
}

// Hunks cuts rows into hunks. Of rows that are the same, context of them are kept
// beside a difference; the others are a hunk apart, if they are at least so many.
func Hunks(rows []DiffRow, context, least int) (hunks []Hunk) {
	add := func(rows []DiffRow, apart bool) {
		if len(rows) > 0 {
			hunks = append(hunks, Hunk{rows, rows[0].Same, apart})
		}
	}
	runs := runsOf(rows, func(a, b DiffRow) bool { return a.Same == b.Same })
	for i, run := range runs {
		before, after := context, context
		if i == 0 {
			before = 0
		}
		if i == len(runs)-1 {
			after = 0
		}
		if !run[0].Same || len(run)-before-after < least {
			add(run, false)
		} else {
			add(run[:before], false)
			add(run[before:len(run)-after], true)
			add(run[len(run)-after:], false)
		}
	}
	return hunks
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// comparePieces marks what differs in two lines, unless next to nothing is alike, or the lines are very long.
func comparePieces(a, b string) (inA, inB []Piece) {
	if len(a)+len(b) > maxLine {
		return []Piece{{a, true}}, []Piece{{b, true}}
	}
	wordsA, wordsB := words(a), words(b)
	script := edits(wordsA, wordsB)
	alike := 0
	for _, e := range script {
		if e.same {
			alike += len(strings.TrimSpace(strings.Join(wordsA[e.a0:e.a1], "")))
		}
	}
	if alike*4 < min(len(a), len(b)) {
		return []Piece{{a, true}}, []Piece{{b, true}}
	}
	piece := func(words []string, differs bool) Piece { return Piece{strings.Join(words, ""), differs} }
	for _, e := range script {
		inA, inB = append(inA, piece(wordsA[e.a0:e.a1], !e.same)), append(inB, piece(wordsB[e.b0:e.b1], !e.same))
	}
	return inA, inB
}
