// Package holds judges by what holders believed: that one that holds alone is alone, and that tokens rise.
// Package compare and the campaigns judge by it. porcupine, which tries every order, agrees with it
// (compare/internal/proof), and so do the rules of the suite, which look at requests (package conformance).
package holds

import (
	"cmp"
	"slices"
)

// Hold is what one Lock was granted. Times are numbers of any one clock.
type Hold struct {
	Who      string
	Shared   bool
	Asked    int64 // before the call
	From, To int64 // the holder believed to hold: To is not in it, and may be before From
	Token    uint64
}

// Judge looks at all holds of one lock. It calls both of each two that held at once, with the one that came
// first, and fell of those whose token is wrong, with one that was before, or is shared with, and shows it.
func Judge(all []Hold, both, fell func(before, next Hold)) {
	all = slices.SortedStableFunc(slices.Values(all), func(a, b Hold) int { return cmp.Compare(a.From, b.From) })
	var inside []Hold    // those before that have not ended, however long ago they came
	var last, alone Hold // the greatest tokens of those that have, and of those that held alone
	for _, next := range all {
		inside = slices.DeleteFunc(inside, func(before Hold) bool {
			if before.To > next.From {
				return false
			}
			if before.Token > last.Token {
				last = before
			}
			if before.Token > alone.Token && !before.Shared {
				alone = before
			}
			return true
		})
		if inside = append(inside, next); next.From >= next.To {
			continue // it may have been granted long before its holder was told
		}
		for _, before := range inside[:len(inside)-1] {
			both(before, next)
			together := before.Shared && next.Shared
			if together && next.Token != before.Token ||
				!together && before.From < next.Asked && next.Token <= before.Token && before.Token != 0 {
				fell(before, next)
			}
		}
		switch {
		case next.Shared && next.Token == 0: // sharers may have none
		case next.Token < last.Token, next.Token == last.Token && last.Token != 0 && !next.Shared:
			fell(last, next)
		case next.Token == alone.Token && alone.Token != 0:
			fell(alone, next)
		}
	}
}
