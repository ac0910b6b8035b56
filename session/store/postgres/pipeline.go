package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// batch collects statements, and what is done with their results. It is sent through the pipeline of package pgconn
// and not as a pgx.Batch, because that copies every value three times: most of a batch is the texts of messages.
type batch struct {
	statements []statement
	// distributed is that of the store.
	distributed bool
	// done are called when all results are read.
	done []func()
}

// statement is a statement with its parameters. result reads what it returned.
type statement struct {
	query  string
	args   []any
	result func(r *pgconn.ResultReader) error
	// refuse is called with the error where the server cannot hold the row that the statement puts; nil of others.
	refuse func(error)
}

// failed is the error of a batch of which the statement failed.
func (s *statement) failed(err error) error {
	if s.refuse != nil && isRefused(err) {
		s.refuse(err)
		return errRefusedRow
	}
	return err
}

// errRefusedRow ends a batch whose transaction the server has given up for a row. The row has its Refused.
var errRefusedRow = errors.New("a row was refused")

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

// then has fn called when all results are read.
func (b *batch) then(fn func()) { b.done = append(b.done, fn) }

// flushBytes is how much is encoded before it is written to the connection: a few values, for the buffer of package
// pgproto3 begins anew after each write, and grows by copying.
const flushBytes = 12 << 10

// send sends all statements and reads their results: one round trip, and another one where the connection sees a
// statement for the first time. The error is that of the first statement that failed; those after it are not executed.
func (b *batch) send(ctx context.Context, conn *pgx.Conn) error {
	c := conn.PgConn()
	known, err := prepare(ctx, conn, b.statements)
	if err != nil {
		return err
	}
	p := c.StartPipeline(ctx)
	var e encoder
	pending := 0
	for i := range b.statements {
		s := &b.statements[i]
		if err := e.encode(conn.TypeMap(), s.args); err != nil {
			p.Close()
			return fmt.Errorf("encode the parameters of %.60q: %w", s.query, err)
		}
		if description := known[s.query]; description != nil {
			p.SendQueryStatement(description, e.values, e.formats, inBinary)
		} else {
			p.SendQueryParams(s.query, e.values, nil, e.formats, inBinary)
		}
		if pending += e.size; pending > flushBytes {
			pending = 0
			if err := p.Flush(); err != nil {
				return err
			}
		}
	}
	if err := p.Sync(); err != nil {
		return err
	}
	err = b.read(p)
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

func (b *batch) read(p *pgconn.Pipeline) error {
	for i := range b.statements {
		results, err := p.GetResults()
		if err != nil {
			return b.statements[i].failed(err)
		}
		r, ok := results.(*pgconn.ResultReader)
		if !ok {
			return fmt.Errorf("the server answered %.60q with %T", b.statements[i].query, results)
		}
		if err := b.statements[i].result(r); err != nil {
			return b.statements[i].failed(err)
		}
	}
	return nil
}

// inBinary is the format of results.
var inBinary = []int16{pgx.BinaryFormatCode}

// preparedKey is where a connection has its statements.
const preparedKey = "agenttrace.prepared"

// prepare returns the descriptions of statements by their texts. It prepares those that the connection does not know
// yet, except where the DSN says that nothing be prepared (default_query_exec_mode=exec), as some poolers need.
func prepare(ctx context.Context, conn *pgx.Conn, statements []statement) (map[string]*pgconn.StatementDescription, error) {
	switch conn.Config().DefaultQueryExecMode {
	case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec:
	default:
		return nil, nil
	}
	c := conn.PgConn()
	known, _ := c.CustomData()[preparedKey].(map[string]*pgconn.StatementDescription)
	if known == nil {
		known = make(map[string]*pgconn.StatementDescription)
		c.CustomData()[preparedKey] = known
	}
	var unknown []string
	for i := range statements {
		query := statements[i].query
		if _, ok := known[query]; !ok {
			known[query] = nil
			unknown = append(unknown, query)
		}
	}
	if len(unknown) == 0 {
		return known, nil
	}
	name := func(i int) string { return "agenttrace_" + strconv.Itoa(len(known)-len(unknown)+i) }
	p := c.StartPipeline(ctx)
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
	return known, err
}

// encoder encodes parameters. What it returns is valid until the next call, and as long as the arguments.
type encoder struct {
	values  [][]byte
	formats []int16
	size    int
	// numbers has the digits of numbers, and the encoded lists.
	numbers []byte
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
