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
	drawn := make([]float64, len(all))
	for i := range means {
		for k := range drawn {
			drawn[k] = all[r.IntN(len(all))]
		}
		means[i] = mean(drawn)
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

// spread is how far values are from the mean of their side and case: the squares of the distances, and the degrees of
// freedom, over all cases. Each case has few runs, and all together show how much an agent varies.
//
// least is added as the distance of a run that was not made. A value that never varied in a few runs may all the same:
// the fewer there are, the more this counts.
func spread(pairs []pair, least float64) (squares, freedom float64) {
	squares, freedom = least*least, 1
	for _, p := range pairs {
		for _, side := range [][]float64{p.was, p.now} {
			m := mean(side)
			for _, v := range side {
				squares += (v - m) * (v - m)
			}
			freedom += max(float64(len(side))-1, 0)
		}
	}
	return squares, freedom
}

// exceeds is the probability, if nothing differs, that the mean of now is as far above that of the baseline as it is:
// Student's test with the spread of all cases.
func (p *pair) exceeds(squares, freedom float64) float64 {
	scale := 1/float64(len(p.was)) + 1/float64(len(p.now))
	return student((mean(p.now)-mean(p.was))/math.Sqrt(squares/freedom*scale), freedom)
}

// allExceed is exceeds over all cases together. Where cases have about one run each, their differences show how much
// they vary, and the test is the paired one.
func allExceed(pairs []pair, least float64) float64 {
	squares, freedom := spread(pairs, least)
	n, sum, scale := float64(len(pairs)), 0.0, 0.0
	for _, p := range pairs {
		sum += mean(p.now) - mean(p.was)
		scale += 1/float64(len(p.was)) + 1/float64(len(p.now))
	}
	if freedom <= n {
		squares, freedom, scale = least*least, n, n
		for _, p := range pairs {
			d := mean(p.now) - mean(p.was) - sum/n
			squares += d * d
		}
	}
	return student(sum/math.Sqrt(squares/freedom*scale), freedom)
}

// student is the probability of a value of t or more of Student's distribution: with t = √f tan θ its density is
// proportional to cos θ to the power of f-1, which is summed up by Simpson's rule.
func student(t, freedom float64) float64 {
	area := func(from float64) (sum float64) {
		const pieces = 2000
		step := (math.Pi/2 - from) / pieces
		for i := range pieces + 1 {
			weight := 2.0 + 2*float64(i%2)
			if i == 0 || i == pieces {
				weight = 1
			}
			sum += weight * math.Pow(max(math.Cos(from+float64(i)*step), 0), freedom-1)
		}
		return sum * step / 3
	}
	return area(math.Atan(t/math.Sqrt(freedom))) / (2 * area(0))
}
