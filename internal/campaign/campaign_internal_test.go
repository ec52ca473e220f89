package campaign

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What two held at once is found however many came between.
func TestJudge(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	long := hold{shared: true, from: at(0), to: at(100_000), token: 1}
	many := []hold{long}
	for i := range 1000 {
		many = append(many, hold{shared: true, from: at(i + 1), to: at(i + 2), token: 1})
	}
	for _, test := range []struct {
		name   string
		holds  []hold
		broken string
	}{
		{"readers", many, ""},
		{"a writer beside the first of a thousand", append(many, hold{from: at(2000), to: at(2001), token: 2}), "at once"},
		{"one after the other", []hold{{false, at(0), at(1), 1}, {false, at(1), at(2), 2}}, ""},
		{"a token twice", []hold{{false, at(0), at(1), 1}, {false, at(1), at(2), 1}}, "after token 1"},
		{"a reader with a writer's token", []hold{{false, at(0), at(1), 1}, {true, at(1), at(2), 1}}, "after token 1"},
		{"readers with other tokens", []hold{{true, at(0), at(3), 1}, {true, at(1), at(2), 2}}, "not a token"},
	} {
		_, broken, disorder := judge(test.holds)
		broken = append(broken, disorder...)
		assert.Equal(t, test.broken != "", len(broken) > 0, "%s: %v", test.name, broken)
		assert.Contains(t, strings.Join(broken, "\n"), test.broken, test.name)
	}
}
