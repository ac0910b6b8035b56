package recorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of what waits to be recorded, in bytes. Of a message that is longer than maxLine nothing is kept; one that
// is shorter is, whatever DefaultMaxPendingBytes is, if nothing else waits.
const maxLine = 256 << 20

// A Message is a line that one side of a [Pipe] sent to the other.
type Message struct {
	At         time.Time // when its end was read
	FromClient bool
	Line       []byte // without the newline
	// Lost is how many messages before it were not recorded. The last message of a recording may have nothing else.
	Lost int64
}

// single returns messages, each of those in a batch, which is an array of them, by itself.
func single(batch []Message) (all []Message) {
	for _, m := range batch {
		lines := []json.RawMessage{m.Line}
		if bytes.HasPrefix(bytes.TrimLeft(m.Line, " \t\r"), []byte("[")) {
			_ = json.Unmarshal(m.Line, &lines) // what is damaged stays as it is
		}
		for _, m.Line = range lines {
			all = append(all, m)
			m.Lost, m.At = 0, m.At.Add(1) // which keeps their order
		}
	}
	return all
}

// A Queue takes messages to a function that records them, on a goroutine of its own. Nothing waits for that function:
// if too much waits for it, messages are lost as a whole, and the next one has their number.
type Queue struct {
	mu      sync.Mutex
	waiting []Message
	size    int
	lost    int64
	closed  bool
	changed sync.Cond // there is more, or an end of it
	done    chan struct{}
}

// NewQueue returns a Queue whose messages record gets, some at a time and in order.
func NewQueue(record func([]Message)) *Queue {
	q := &Queue{done: make(chan struct{})}
	q.changed.L = &q.mu
	go func() {
		defer close(q.done)
		for batch := q.next(); batch != nil; batch = q.next() {
			record(batch)
		}
	}()
	return q
}

// next waits for messages. It returns nil at the end.
func (q *Queue) next() (batch []Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 && !q.closed {
		q.changed.Wait()
	}
	batch, q.waiting, q.size = q.waiting, nil, 0
	if q.closed && q.lost > 0 {
		batch, q.lost = append(batch, Message{At: time.Now(), Lost: q.lost}), 0
	}
	return batch
}

// put adds a message. A nil line is one that was too long to be kept.
func (q *Queue) put(m Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if m.Line == nil || q.closed || q.size > 0 && q.size+len(m.Line) > DefaultMaxPendingBytes {
		q.lost++
		return
	}
	m.Lost, q.lost = q.lost, 0
	q.waiting = append(q.waiting, m)
	q.size += len(m.Line)
	q.changed.Signal()
}

// Close returns when all that was put is recorded. What is put later is lost.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.changed.Signal()
	q.mu.Unlock()
	<-q.done
}

// A Pipe stands between a client and a program that exchange lines on the program's standard input and output. Every
// byte goes on as it came, before anything is made of it.
type Pipe struct {
	// Cmd is the program. Its Stdin and Stdout are the Pipe's.
	Cmd *exec.Cmd
	// In is what the client sends, and Out what it gets. One that can be closed is, when the program does not read or
	// write any more.
	In  io.Reader
	Out io.Writer
	// Queue gets the messages of both sides.
	Queue *Queue
	// Rewrite, if it is set, returns what the program gets for a line of the client. The line then waits for its end.
	Rewrite func(line []byte) []byte
	// Answer, if it is set, returns what the client gets for a line of it that the program does not get, or nil. The lines
	// of both sides then wait for their ends. It excludes Rewrite.
	Answer func(line []byte) []byte
	// Started, if it is set, is called with the process of the program.
	Started func(*os.Process)

	mu sync.Mutex // of Out
}

// Run runs the program until it exits, whether the client has more to send or not. It dies with this process, where the
// system has that. An error is that of [exec.Cmd.Run].
func (p *Pipe) Run() error {
	stdin, toProgram, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	fromProgram, stdout, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", errors.Join(err, stdin.Close(), toProgram.Close()))
	}
	p.Cmd.Stdin, p.Cmd.Stdout = stdin, stdout
	runtime.LockOSThread() // whose death the system takes for that of the process
	defer runtime.UnlockOSThread()
	dieTogether(p.Cmd)
	err = p.Cmd.Start()
	_, _ = stdin.Close(), stdout.Close()
	if err != nil {
		return errors.Join(err, toProgram.Close(), fromProgram.Close())
	}
	if p.Started != nil {
		p.Started(p.Cmd.Process)
	}
	go func() {
		p.copy(toProgram, p.In, true)
		_ = toProgram.Close()
	}()
	copied := make(chan struct{})
	rest := &drained{File: fromProgram}
	go func() {
		defer close(copied)
		if p.copy(p.Out, rest, false) && !rest.exited.Load() {
			shut(p.Out)
		}
	}()
	err = p.Cmd.Wait()
	rest.exited.Store(true)
	_ = fromProgram.SetReadDeadline(time.Now().Add(lastWords))
	<-copied
	return err
}

// lastWords is how long what a program started may be silent after the program has exited, before its output counts as
// ended: what holds it open may never exit.
const lastWords = 500 * time.Millisecond

// drained is the output of a program that may have exited.
type drained struct {
	*os.File
	exited atomic.Bool
}

func (d *drained) Read(b []byte) (n int, err error) {
	for range 2 { // a deadline that has passed says nothing about what is there
		if d.exited.Load() {
			_ = d.SetReadDeadline(time.Now().Add(lastWords))
		}
		if n, err = d.File.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return n, err
}

// copy copies src to dst until one of them ends, and reports whether src did. Each line is put into the queue before it
// is written: the answer to it comes later.
func (p *Pipe) copy(dst io.Writer, src io.Reader, fromClient bool) (ended bool) {
	rewrite := p.Rewrite
	if !fromClient {
		rewrite = nil
	}
	if p.Answer != nil {
		rewrite = func(line []byte) []byte { return line }
		if fromClient {
			rewrite = p.unanswered
		}
	}
	var line, out []byte
	tooLong := false
	end := func() {
		if rewrite != nil && !tooLong {
			line = rewrite(line)
			out = append(out, line...)
		}
		if tooLong {
			line = nil
		} else {
			line = bytes.TrimSuffix(line, []byte("\n"))
		}
		if tooLong || len(bytes.TrimSpace(line)) > 0 {
			p.Queue.put(Message{At: time.Now(), FromClient: fromClient, Line: line})
		}
		line, tooLong = nil, false
	}
	for chunk := make([]byte, 64<<10); ; {
		n, err := src.Read(chunk)
		out = out[:0]
		for rest := chunk[:n]; len(rest) > 0; {
			piece, more, found := bytes.Cut(rest, []byte("\n"))
			if found {
				piece = rest[:len(piece)+1]
			}
			if !tooLong && len(line)+len(piece) > maxLine {
				if rewrite != nil {
					out = append(out, line...)
				}
				line, tooLong = nil, true
			}
			switch rest = more; {
			case !tooLong:
				line = append(line, piece...)
			case rewrite != nil:
				out = append(out, piece...)
			}
			if found {
				end()
			}
		}
		if err != nil && (tooLong || len(line) > 0) {
			end()
		}
		if rewrite == nil {
			out = chunk[:n]
		}
		if len(out) > 0 {
			if broken := p.write(dst, out, !fromClient); broken != nil {
				shut(src) // the program that writes to it learns that nobody reads
				return false
			}
		}
		if err != nil {
			return true
		}
	}
}

// write writes to the program or to the client, which may get answers at the same time.
func (p *Pipe) write(to io.Writer, text []byte, toClient bool) error {
	if toClient {
		p.mu.Lock()
		defer p.mu.Unlock()
	}
	_, err := to.Write(text)
	return err
}

// unanswered answers a line of the client, and returns nil if it did.
func (p *Pipe) unanswered(line []byte) []byte {
	answer := p.Answer(line)
	if answer == nil {
		return line
	}
	p.Queue.put(Message{At: time.Now(), FromClient: true, Line: bytes.TrimSuffix(line, []byte("\n"))})
	p.Queue.put(Message{At: time.Now(), Line: answer})
	_ = p.write(p.Out, append(bytes.Clone(answer), '\n'), true) // a client that has gone needs none
	return nil
}

func shut(stream any) {
	if c, ok := stream.(io.Closer); ok {
		_ = c.Close()
	}
}
