package campaign

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/memory"
)

// staying is a backend that several clients use, one after the other.
type staying struct{ *memory.Backend }

func (staying) Close() error { return nil }

// What does not survive is found out.
func TestAges(t *testing.T) {
	for says, step := range map[string]func(b *memory.Backend){
		"":                 func(*memory.Backend) {},
		"a lease was lost": func(b *memory.Backend) { b.Delete("held") },
		"a call failed": func(b *memory.Backend) {
			b.Fail(locker.ErrUnavailable)
			time.AfterFunc(time.Second, func() { b.Fail(nil) })
		},
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.NewExpiring()
				openers := locker.Openers{"m": func(context.Context, *locker.URL, locker.Options) (locker.Backend, error) {
					return staying{b}, nil
				}}
				err := age(t, lab.Ageing{Thing: "test", Start: func(lab.TB) *lab.Aged {
					return &lab.Aged{URL: "m://", TTL: 3 * time.Second, Steps: []func(lab.TB) string{func(lab.TB) string {
						step(b)
						return "it happened"
					}}}
				}}, openers)
				if says == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, says)
				}
			})
		})
	}
}
