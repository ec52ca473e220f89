package holds_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/internal/holds"
)

// What two held at once is found however many came between, and each token is compared with all before.
func TestJudge(t *testing.T) {
	many := []holds.Hold{{Who: "long", Shared: true, To: 100_000, Token: 1}}
	for i := range int64(1000) {
		many = append(many, holds.Hold{Shared: true, From: i + 1, To: i + 2, Token: 1})
	}
	writer := func(from, to int64, token uint64) holds.Hold {
		return holds.Hold{Asked: from - 1, From: from, To: to, Token: token}
	}
	reader := func(from, to int64, token uint64) holds.Hold {
		return holds.Hold{Shared: true, From: from, To: to, Token: token}
	}
	for _, test := range []struct {
		name  string
		holds []holds.Hold
		says  string
	}{
		{"readers", many, ""},
		{"a writer beside the first of a thousand", append(many, writer(2000, 2001, 2)), "long at once"},
		{"one after the other", []holds.Hold{writer(1, 2, 2), writer(0, 1, 1)}, ""},
		{"over when it came", []holds.Hold{writer(0, 5, 2), writer(3, 2, 1), writer(5, 4, 1)}, ""},
		{"after one that was over when it came", []holds.Hold{writer(3, 2, 2), writer(4, 5, 1)}, "fell"},
		{"without tokens", []holds.Hold{writer(0, 1, 0), writer(1, 2, 0)}, ""},
		{"sharers without tokens", []holds.Hold{writer(0, 1, 5), reader(1, 2, 0), writer(2, 3, 6)}, ""},
		{"a token twice", []holds.Hold{writer(0, 1, 1), writer(1, 2, 1)}, "fell"},
		{"no token after one", []holds.Hold{writer(0, 1, 1), writer(1, 2, 0)}, "fell"},
		{"a lower one of one who asked later", []holds.Hold{writer(1, 5, 2), writer(3, 9, 1)}, "at once  fell"},
		{"a lower one of one who asked before", []holds.Hold{writer(2, 5, 2), writer(3, 9, 1)}, "at once"},
		{"a writer with a reader's token", []holds.Hold{reader(0, 1, 1), writer(1, 2, 1)}, "fell"},
		{"a reader with a writer's token", []holds.Hold{writer(0, 1, 1), reader(1, 2, 1)}, "fell"},
		{"a reader with the token of a reader that left", []holds.Hold{reader(0, 1, 1), reader(1, 2, 1)}, ""},
		{"readers with other tokens", []holds.Hold{reader(0, 3, 1), reader(1, 2, 2)}, "fell"},
	} {
		says := ""
		holds.Judge(test.holds, func(a, b holds.Hold) {
			if !a.Shared || !b.Shared {
				says += a.Who + " at once "
			}
		}, func(a, _ holds.Hold) { says += a.Who + " fell " })
		assert.Equal(t, test.says, strings.TrimSpace(says), test.name)
	}
}
