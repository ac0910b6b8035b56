package redact

import "slices"

// Fit returns the length to which texts must be cut, the longest first, so that all
// of them together are shorter by excess bytes. It is never less than [MinLimit],
// which may be too much. With no excess it returns the greatest length.
func Fit(lengths []int, excess int) (limit int) {
	sorted := slices.Sorted(slices.Values(lengths))
	slices.Reverse(sorted)
	if len(sorted) == 0 {
		return MinLimit
	}
	limit = sorted[0]
	for i := range sorted {
		if excess <= 0 {
			break
		}
		// The first i+1 are all as long as limit now; they go down to the next one.
		next := 0
		if i+1 < len(sorted) {
			next = sorted[i+1]
		}
		if each := (excess + i) / (i + 1); each < limit-next {
			limit -= each
			break
		}
		excess -= (limit - next) * (i + 1)
		limit = next
	}
	return max(limit, MinLimit)
}
