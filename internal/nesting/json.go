package nesting

// objectCost is what an object of a request takes in memory at most, about: a span.
const objectCost = 256

// JSON returns about how much memory a request in JSON takes beside its texts. What is not JSON is left to the decoder.
// It fails with [ErrTooDeep], and with [ErrTooLarge] when the request takes more than maxDecoded bytes; 0 is no limit.
func JSON(request []byte, maxDecoded int64) (cost int64, err error) {
	// The decoder makes a span or value of each element of an array, also where a number or null stands.
	var opened, elements int64
	var array [maxJSONDepth + 1]bool // by the levels around
	depth := 0
	for i := 0; i < len(request); i++ {
		switch c := request[i]; c {
		case '"':
			i = stringEnd(request, i)
		case ',':
			if array[depth] {
				elements++
			}
		case '{', '[':
			if depth++; depth > maxJSONDepth {
				return 0, ErrTooDeep
			}
			opened++
			array[depth] = c == '['
		case '}', ']':
			depth = max(depth-1, 0)
		}
	}
	cost = max(opened, elements) * objectCost
	if maxDecoded > 0 && cost > maxDecoded {
		return 0, ErrTooLarge
	}
	return cost, nil
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
