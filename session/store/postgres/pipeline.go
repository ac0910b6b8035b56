package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// batch collects statements, and what is done with their results. It is sent through the pipeline of package pgconn
// and not as a pgx.Batch, because that copies every value three times: most of a batch is the texts of messages.
type batch struct {
	statements []statement
	// oneByOne has each row inserted by a statement of its own: to find out which one is refused, and on a distributed
	// engine, which sends such a statement to the row's node and pulls the rows of a SELECT through the coordinator.
	oneByOne bool
	dialect  *sqlstore.Dialect
	// done are called when all results are read.
	done []func()
}

// statement is a statement with its parameters. result reads what it returned.
type statement struct {
	query string
	args  []any
	// rows are those that the statement inserts; nil where it has args. It is executed once for each flushBytes of
	// them.
	rows rowEncoder
	// executions is how often it was sent.
	executions int
	result     func(r *pgconn.ResultReader) error
	// refuse is called with the error where the server cannot hold the row that the statement puts; nil of others.
	refuse func(error)
}

// failed is the error of a batch of which the statement failed.
func (s *statement) failed(err error) error {
	switch {
	case s.rows != nil && isRefused(err):
		return errRefusedRows
	case s.refuse != nil && isRefused(err):
		s.refuse(err)
		return errRefusedRow
	}
	return err
}

var (
	// errRefusedRow ends a batch whose transaction the server has given up for a row. The row has its Refused.
	errRefusedRow = errors.New("a row was refused")
	// errRefusedRows ends a transaction in which it is not known which row of a statement was refused. It is repeated
	// with a statement for each row.
	errRefusedRows = errors.New("one of several rows was refused")
)

// exec adds a statement without a result.
func (b *batch) exec(query string, args ...any) {
	b.add(query, args, func(r *pgconn.ResultReader) error {
		_, err := r.Close()
		return err
	})
}

func (b *batch) add(query string, args []any, result func(r *pgconn.ResultReader) error) {
	b.statements = append(b.statements, statement{query: query, args: args, result: result})
}

// query adds a statement and calls fn for each row of its result.
func (b *batch) query(fn func(*row) error, query string, args ...any) {
	b.add(query, args, func(r *pgconn.ResultReader) error {
		at := &row{fields: r.FieldDescriptions()}
		for r.NextRow() {
			at.values = r.Values()
			if err := fn(at); err != nil {
				return err
			}
		}
		_, err := r.Close()
		return err
	})
}

// Select implements [sqlstore.Statements].
func (b *batch) Select(query string, fn func(sqlstore.Row) error, args ...any) {
	b.query(func(r *row) error { return fn(r) }, numbered(query), args...)
}

// SelectKeys implements [sqlstore.Statements]: by one statement, which has the keys as a list.
func (b *batch) SelectKeys(query string, fn func(sqlstore.Row) error, keys []string) {
	b.query(func(r *row) error { return fn(r) }, strings.Replace(numbered(query), "= $1", "= ANY($1::text[])", 1), keys)
}

// Dialect implements [sqlstore.Statements].
func (b *batch) Dialect() *sqlstore.Dialect { return b.dialect }

// then has fn called when all results are read.
func (b *batch) then(fn func()) { b.done = append(b.done, fn) }

// flushBytes is how much is encoded before it is written to the connection, and how much one execution inserts: enough
// to make the cost of messages and system calls small, and little enough for the cache of a processor.
const flushBytes = 128 << 10

// connState is what a connection keeps from one batch to the next.
type connState struct {
	// prepared has the statements that the connection knows by their texts.
	prepared map[string]*pgconn.StatementDescription
	encoder  encoder
	buffer   writeBuffer
}

// stateKey is where a connection has its connState.
const stateKey = "agenttrace.state"

func stateOf(c *pgconn.PgConn) *connState {
	state, _ := c.CustomData()[stateKey].(*connState)
	if state == nil {
		state = &connState{
			prepared: make(map[string]*pgconn.StatementDescription),
			buffer:   make(writeBuffer, 0, 2*flushBytes+4<<10),
		}
		c.CustomData()[stateKey] = state
	}
	return state
}

// writeBuffer is a message of no bytes. Sent first, it has package pgproto3 append the following ones to the buffer,
// which otherwise begins with 1 KB after each write and grows by copying.
type writeBuffer []byte

var _ pgproto3.FrontendMessage = writeBuffer(nil)

// Frontend implements [pgproto3.FrontendMessage], and so do the other methods.
func (writeBuffer) Frontend() {}

func (b writeBuffer) Encode(dst []byte) ([]byte, error) { return append(b[:0], dst...), nil }

func (writeBuffer) Decode([]byte) error { return errors.ErrUnsupported }

// send sends all statements and reads their results: one round trip, and another one where the connection sees a
// statement for the first time. The error is that of the first statement that failed; those after it are not executed.
func (b *batch) send(ctx context.Context, conn *pgx.Conn) error {
	c := conn.PgConn()
	state := stateOf(c)
	if err := state.prepare(ctx, conn, b.statements); err != nil {
		return err
	}
	p := c.StartPipeline(ctx)
	if err := b.transmit(p, conn, state); err != nil {
		p.Close()
		return err
	}
	err := b.read(p)
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		for _, fn := range b.done {
			fn()
		}
	}
	return err
}

// transmit writes the statements to the connection.
func (b *batch) transmit(p *pgconn.Pipeline, conn *pgx.Conn, state *connState) error {
	frontend, e, pending := conn.PgConn().Frontend(), &state.encoder, 0
	frontend.Send(state.buffer)
	for i := range b.statements {
		s := &b.statements[i]
		for more := true; more; s.executions++ {
			var err error
			if s.rows == nil {
				more, err = false, e.encode(conn.TypeMap(), s.args)
			} else {
				more = e.encodeRows(s.rows)
			}
			if err != nil {
				return fmt.Errorf("encode the parameters of %.60q: %w", s.query, err)
			}
			if description := state.prepared[s.query]; description != nil {
				p.SendQueryStatement(description, e.values, e.formats, inBinary)
			} else {
				p.SendQueryParams(s.query, e.values, nil, e.formats, inBinary)
			}
			if pending += e.size; pending > flushBytes {
				pending = 0
				if err := p.Flush(); err != nil {
					return err
				}
				frontend.Send(state.buffer)
			}
		}
	}
	e.release()
	return p.Sync()
}

func (b *batch) read(p *pgconn.Pipeline) error {
	for i := range b.statements {
		s := &b.statements[i]
		for range s.executions {
			results, err := p.GetResults()
			if err != nil {
				return s.failed(err)
			}
			r, ok := results.(*pgconn.ResultReader)
			if !ok {
				return fmt.Errorf("the server answered %.60q with %T", s.query, results)
			}
			if err := s.result(r); err != nil {
				return s.failed(err)
			}
		}
	}
	return nil
}

// inBinary is the format of results.
var inBinary = []int16{pgx.BinaryFormatCode}

// prepare prepares the statements that the connection does not know yet, except where the DSN says that nothing be
// prepared (default_query_exec_mode=exec), as some poolers need.
func (state *connState) prepare(ctx context.Context, conn *pgx.Conn, statements []statement) error {
	switch conn.Config().DefaultQueryExecMode {
	case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec:
	default:
		return nil
	}
	known := state.prepared
	var unknown []string
	for i := range statements {
		query := statements[i].query
		if _, ok := known[query]; !ok {
			known[query] = nil
			unknown = append(unknown, query)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	name := func(i int) string { return "agenttrace_" + strconv.Itoa(len(known)-len(unknown)+i) }
	p := conn.PgConn().StartPipeline(ctx)
	for i, query := range unknown {
		p.SendPrepare(name(i), query, nil)
	}
	err := p.Sync()
	for i := 0; err == nil && i < len(unknown); i++ {
		var results any
		if results, err = p.GetResults(); err == nil {
			description, ok := results.(*pgconn.StatementDescription)
			if !ok {
				err = fmt.Errorf("the server answered the preparation of %.60q with %T", unknown[i], results)
			}
			description.Name = name(i)
			known[unknown[i]] = description
		}
	}
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		for _, query := range unknown {
			if known[query] == nil {
				delete(known, query)
			}
		}
	}
	return err
}

// encoder encodes parameters. What it returns is valid until the next call, and as long as the arguments. Its buffers
// are used again.
type encoder struct {
	values  [][]byte
	formats []int16
	size    int
	// numbers has the digits of numbers, and the encoded lists.
	numbers []byte
	// columns are those of rows, each encoded as an array.
	columns []arrayColumn
}

// encode encodes arguments: text and numbers as text, which the server converts to what the column is, bytes and lists
// in binary. Texts and bytes are not copied.
func (e *encoder) encode(types *pgtype.Map, args []any) (err error) {
	e.values, e.formats, e.size, e.numbers = e.values[:0], e.formats[:0], 0, e.numbers[:0]
	for _, arg := range args {
		var value []byte
		format, from := int16(pgx.TextFormatCode), len(e.numbers)
		switch v := arg.(type) {
		case nil:
		case string:
			if value = unsafe.Slice(unsafe.StringData(v), len(v)); value == nil {
				value = []byte{}
			}
		case []byte:
			value, format = v, pgx.BinaryFormatCode
		case int64:
			e.numbers = strconv.AppendInt(e.numbers, v, 10)
			value = e.numbers[from:]
		case int:
			e.numbers = strconv.AppendInt(e.numbers, int64(v), 10)
			value = e.numbers[from:]
		case float64:
			if math.IsInf(v, 0) { // as PostgreSQL spells it
				value = []byte(map[bool]string{true: "Infinity", false: "-Infinity"}[v > 0])
				break
			}
			e.numbers = strconv.AppendFloat(e.numbers, v, 'g', -1, 64)
			value = e.numbers[from:]
		case []string:
			e.numbers, err = types.Encode(pgtype.TextArrayOID, pgx.BinaryFormatCode, v, e.numbers)
			value, format = e.numbers[from:], pgx.BinaryFormatCode
		case []int64:
			e.numbers, err = types.Encode(pgtype.Int8ArrayOID, pgx.BinaryFormatCode, v, e.numbers)
			value, format = e.numbers[from:], pgx.BinaryFormatCode
		default:
			err = fmt.Errorf("a parameter is a %T", arg)
		}
		if err != nil {
			return err
		}
		e.values, e.formats = append(e.values, value), append(e.formats, format)
		e.size += len(value)
	}
	return nil
}

// rowEncoder encodes rows, one after the other.
type rowEncoder interface {
	// types are those of the columns' elements.
	types() []uint32
	// next binds the next row, and reports whether there are more.
	next(sqlstore.Binder) (more bool)
	// executed notes that a statement inserts the rows since the last one, n.
	executed(n int64)
}

// arrayColumn is an array in PostgreSQL's binary format: its header, then each element after its length.
type arrayColumn struct {
	data  []byte
	nulls bool
}

// arrayHeader is how many bytes precede the elements: the number of dimensions, whether there are NULLs, the type of
// the elements, how many there are, and the index of the first one.
const arrayHeader = 20

// encodeRows encodes the next rows as arrays, one for each column, and reports whether there are more.
func (e *encoder) encodeRows(rows rowEncoder) (more bool) {
	types, n := rows.types(), 0
	e.values, e.formats, e.size = e.values[:0], e.formats[:0], 0
	for len(e.columns) < len(types) {
		e.columns = append(e.columns, arrayColumn{})
	}
	for i := range types {
		c := &e.columns[i]
		c.data, c.nulls = append(c.data[:0], make([]byte, arrayHeader)...), false
	}
	for more = true; more && e.size < flushBytes; n++ {
		more = rows.next(e)
	}
	for i, oid := range types {
		c := &e.columns[i]
		binary.BigEndian.PutUint32(c.data, 1)
		if c.nulls {
			binary.BigEndian.PutUint32(c.data[4:], 1)
		}
		binary.BigEndian.PutUint32(c.data[8:], oid)
		binary.BigEndian.PutUint32(c.data[12:], uint32(n))
		binary.BigEndian.PutUint32(c.data[16:], 1)
		e.values, e.formats = append(e.values, c.data), append(e.formats, pgx.BinaryFormatCode)
	}
	rows.executed(int64(n))
	return more
}

// release lets go of what was encoded, and of buffers that an exceptionally large value made grow.
func (e *encoder) release() {
	clear(e.values[:cap(e.values)])
	if cap(e.numbers) > flushBytes {
		e.numbers = nil
	}
	for i := range e.columns {
		if cap(e.columns[i].data) > 2*flushBytes {
			e.columns[i].data = nil
		}
	}
}

// length appends the length of the next element of a column.
func (e *encoder) length(param, n int) *arrayColumn {
	c := &e.columns[param-1]
	c.data = binary.BigEndian.AppendUint32(c.data, uint32(n))
	e.size += n + 4
	return c
}

// BindText implements [sqlstore.Binder], and so do the other methods: they append to the columns.
func (e *encoder) BindText(param int, v string) {
	c := e.length(param, len(v))
	c.data = append(c.data, v...)
}

func (e *encoder) BindBytes(param int, v []byte) {
	c := e.length(param, len(v))
	c.data = append(c.data, v...)
}

func (e *encoder) BindInt64(param int, v int64) {
	c := e.length(param, 8)
	c.data = binary.BigEndian.AppendUint64(c.data, uint64(v))
}

func (e *encoder) BindFloat(param int, v float64) { e.BindInt64(param, int64(math.Float64bits(v))) }

func (e *encoder) BindBool(param int, v bool) {
	if v {
		e.BindInt64(param, 1)
	} else {
		e.BindInt64(param, 0)
	}
}

func (e *encoder) BindNull(param int) {
	c := &e.columns[param-1]
	c.data, c.nulls = append(c.data, 0xff, 0xff, 0xff, 0xff), true // a length of -1
	e.size += 4
}
