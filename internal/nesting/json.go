package nesting

// objectCost is what an object of a request takes in memory at most, about: a span.
const objectCost = 256

// JSON cuts what is nested too deep out of a request in JSON, in place, and returns the request, and about how much
// memory it takes beside its texts. What is not JSON stays so. It fails with [ErrTooLarge] when the request takes more
// than maxDecoded bytes; 0 is no limit.
//
// An object or array that begins too deep loses its inside: {} and [] are valid wherever OTLP has an object or an
// array, so this needs to know nothing of OTLP.
func JSON(request []byte, maxDecoded int64) (bounded []byte, cost int64, err error) {
	// request[:kept] stays, and request[from:i] too, which is moved when something behind it goes.
	kept, from, depth := 0, 0, 0
	// The decoder makes a span or value of each element of an array, also where a number or null stands.
	var opened, elements int64
	var array [maxJSONDepth + 1]bool // by the levels around
	keep := func(to int) {
		kept += copy(request[kept:], request[from:to])
		from = to
	}
	for i := 0; i < len(request); i++ {
		switch c := request[i]; c {
		case '"':
			i = stringEnd(request, i)
		case ',':
			if depth <= maxJSONDepth && array[depth] {
				elements++
			}
		case '{', '[':
			if depth++; depth <= maxJSONDepth {
				opened++
				array[depth] = c == '['
			} else if depth == maxJSONDepth+1 {
				keep(i + 1)
			}
		case '}', ']':
			if depth == maxJSONDepth+1 {
				from = i // the inside goes
			}
			depth = max(depth-1, 0)
		}
	}
	if depth <= maxJSONDepth {
		keep(len(request))
	}
	cost = max(opened, elements) * objectCost
	if maxDecoded > 0 && cost > maxDecoded {
		return nil, 0, ErrTooLarge
	}
	return request[:kept], cost, nil
}

// stringEnd returns where the string ends whose quote is at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i
}
