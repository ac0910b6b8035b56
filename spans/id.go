package spans

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Prefixes of ids.
const (
	PrefixSession    = "ses_"
	PrefixMessage    = "msg_"
	PrefixPart       = "prt_"
	PrefixPermission = "per_"
)

const (
	base62    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	hexDigits = "0123456789abcdef"
	idLength  = 4 + 12 + 14
)

// lastStamp is the stamp of the last id that NewID returned.
var lastStamp atomic.Uint64

// NewID returns a new id: the prefix, a 12-digit hexadecimal stamp of the time and a counter, and 14 random base-62
// characters. Ids of one process sort in the order in which they were created, until the stamp wraps: it is the low
// 48 bits of milliseconds * 4096, which wrap every 795 days. Order rows by (created_at, id).
//
// NewID is safe for concurrent use.
func NewID(prefix string, now time.Time) string {
	stamp := uint64(now.UnixMilli()) << 12
	for {
		last := lastStamp.Load()
		next := max(stamp, last+1)
		if lastStamp.CompareAndSwap(last, next) {
			return formatID(prefix, next, rand.Uint64(), rand.Uint64())
		}
	}
}

// DeriveID returns an id for something without one: from its time, in Unix milliseconds,
// and a hash of the parts that identify it. It is deterministic.
func DeriveID(prefix string, atMilli int64, parts ...string) string {
	return derive(prefix, uint64(atMilli)<<12, parts)
}

// TraceSession returns the session id of a trace without a session key. A trace id is
// random already, and leads back to the trace.
func TraceSession(traceID string) string { return PrefixSession + traceID }

// DeriveIDNano is DeriveID for a time in Unix nanoseconds: ids of times at least a
// quarter of a microsecond apart sort in the order of their times.
func DeriveIDNano(prefix string, atNano int64, parts ...string) string {
	milli := uint64(atNano) / 1e6
	return derive(prefix, milli<<12|(uint64(atNano)-milli*1e6)<<12/1e6, parts)
}

func derive(prefix string, stamp uint64, parts []string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	sum := h.Sum(nil)
	return formatID(prefix, stamp, binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:]))
}

func formatID(prefix string, stamp, r1, r2 uint64) string {
	b := make([]byte, 0, idLength)
	b = append(b, prefix...)
	for shift := 44; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[stamp>>shift&15])
	}
	for range 7 {
		b = append(b, base62[r1%62], base62[r2%62])
		r1 /= 62
		r2 /= 62
	}
	return string(b)
}
