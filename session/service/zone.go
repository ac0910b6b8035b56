package service

import (
	"encoding/binary"
	"math"
	"time"
)

// zoneOf is a time zone as data of a zone file (RFC 8536, version 1), with its changes from 1970 to 2037. A name cannot
// stand for it: that of the local zone is not known to a program, and another machine may have another database.
func zoneOf(where *time.Location) []byte {
	if where == nil || where == time.UTC {
		return nil
	}
	type kind struct {
		name   string
		offset int
	}
	indexes := make(map[kind]byte)
	var times, types, kinds, names []byte
	for at := time.Unix(0, 0).In(where); !at.IsZero() && at.Unix() <= math.MaxInt32; _, at = at.ZoneBounds() {
		var k kind
		k.name, k.offset = at.Zone()
		index, ok := indexes[k]
		if !ok {
			index = byte(len(indexes))
			indexes[k] = index
			kinds = binary.BigEndian.AppendUint32(kinds, uint32(int32(k.offset)))
			kinds = append(kinds, 0, byte(len(names)))
			names = append(append(names, k.name...), 0)
		}
		times = binary.BigEndian.AppendUint32(times, uint32(at.Unix()))
		types = append(types, index)
	}
	out := append([]byte("TZif"), make([]byte, 16)...)
	for _, count := range []int{0, 0, 0, len(types), len(indexes), len(names)} {
		out = binary.BigEndian.AppendUint32(out, uint32(count))
	}
	out = append(append(out, times...), types...)
	return append(append(out, kinds...), names...)
}

// locationOf is the time zone of zoneOf's data; none is UTC.
func locationOf(zone []byte) (*time.Location, error) {
	if len(zone) == 0 {
		return time.UTC, nil
	}
	where, err := time.LoadLocationFromTZData("client", zone)
	if err != nil {
		return nil, Invalidf("zone", "", "the time zone is no data of a zone file: %v", err)
	}
	return where, nil
}
