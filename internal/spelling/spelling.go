// Package spelling guesses which word was meant by a mistyped one. (cobra does it for commands; words that are no
// commands are known to modules without it, too.)
package spelling

import "strings"

// most is how many letters may be wrong, missing, or too many.
const most = 2

// Meant asks for the known word that is next to word, as in ": did you mean run?"; it returns "" if none is near.
func Meant(word string, known []string) string {
	best, near := "", most+1
	for _, k := range known {
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if word != "" && strings.HasPrefix(k, word) {
			d = min(d, most)
		}
		if d < near {
			best, near = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance is Levenshtein's: how many letters have to be changed, added or removed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
