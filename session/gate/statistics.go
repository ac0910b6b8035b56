package gate

import (
	"math"
	"math/rand/v2"
	"slices"
)

// seed is that of all resampling, so that the same runs give the same figures.
const seed = 20240607

// resamples is how often runs are drawn again.
const resamples = 2000

func mean(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return sum / max(float64(len(all)), 1)
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// interval is the 95 % interval of the mean of values by bootstrap, of a fixed seed. One value has none: both ends are
// it.
func interval(all []float64) (low, high float64) {
	r := rand.New(rand.NewPCG(seed, uint64(len(all))))
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range all {
			sum += all[r.IntN(len(all))]
		}
		means[i] = sum / max(float64(len(all)), 1)
	}
	slices.Sort(means)
	return means[resamples*25/1000], means[resamples*975/1000-1]
}

// lowest is the least share of successes that n runs with k of them leave possible, with a confidence: the lower end of
// the exact interval of Clopper and Pearson, one-sided.
func lowest(k, n int, confidence float64) float64 {
	low, high := 0.0, 1.0
	for range 60 {
		p := (low + high) / 2
		if tail(k, n, p) < 1-confidence {
			low = p
		} else {
			high = p
		}
	}
	return low
}

// tail is the probability of k or more successes of n, each of probability p.
func tail(k, n int, p float64) (sum float64) {
	for i := k; i <= n; i++ {
		sum += math.Exp(logChoose(n, i) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// fisher is the probability, if nothing differs, that of a of n and b of m the second share is as small or smaller:
// Fisher's exact test, one-sided.
func fisher(a, n, b, m int) (p float64) {
	all := a + b
	for i := max(0, all-n); i <= b; i++ {
		p += math.Exp(logChoose(m, i) + logChoose(n, all-i) - logChoose(n+m, all))
	}
	return min(p, 1)
}

// pair are the values of one case, in the baseline and now.
type pair struct{ was, now []float64 }

// larger is the probability, if nothing differs, that the values of now exceed those of the baseline by their ranks as
// much as they do, over all cases: a permutation test in which values change places within their case. It counts all
// permutations where there are few, and draws some of a fixed seed otherwise.
func larger(pairs []pair) float64 {
	type stratum struct {
		ranks []float64
		now   int
	}
	var strata []stratum
	observed, ways := 0.0, 1.0
	for _, p := range pairs {
		if len(p.was) == 0 || len(p.now) == 0 {
			continue
		}
		r := ranks(slices.Concat(p.now, p.was))
		for _, v := range r[:len(p.now)] {
			observed += v
		}
		strata = append(strata, stratum{r, len(p.now)})
		ways *= math.Exp(logChoose(len(r), len(p.now)))
	}
	const exact = 20000
	if ways <= exact {
		// sums has the number of ways in which the cases so far give a sum of ranks.
		sums := map[float64]float64{0: 1}
		for _, s := range strata {
			next := map[float64]float64{}
			choose(s.ranks, s.now, 0, func(sum float64) {
				for before, n := range sums {
					next[before+sum] += n
				}
			})
			sums = next
		}
		above := 0.0
		for sum, n := range sums {
			if sum >= observed {
				above += n
			}
		}
		return above / ways
	}
	r := rand.New(rand.NewPCG(seed, uint64(len(strata))))
	above := 1 // the runs as they are are one of the permutations
	for range exact {
		sum := 0.0
		for _, s := range strata {
			r.Shuffle(len(s.ranks), func(i, j int) { s.ranks[i], s.ranks[j] = s.ranks[j], s.ranks[i] })
			for _, v := range s.ranks[:s.now] {
				sum += v
			}
		}
		if sum >= observed {
			above++
		}
	}
	return float64(above) / (exact + 1)
}

// choose calls with the sum of each choice of n of the values.
func choose(values []float64, n int, sum float64, call func(sum float64)) {
	if n == 0 {
		call(sum)
		return
	}
	for i := 0; i+n <= len(values); i++ {
		choose(values[i+1:], n-1, sum+values[i], call)
	}
}

// ranks are the places of values in their order, from 1; equal ones share the mean of theirs.
func ranks(values []float64) []float64 {
	s := slices.Sorted(slices.Values(values))
	all := make([]float64, len(values))
	for i, v := range values {
		first, _ := slices.BinarySearch(s, v)
		last := first
		for last < len(s) && s[last] == v {
			last++
		}
		all[i] = float64(first+last+1) / 2
	}
	return all
}
