//go:build linux || darwin || freebsd

package fileguard_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
	"github.com/golockers/locker/internal/guardtest"
)

func TestSuite(t *testing.T) {
	dir := t.TempDir()
	guardtest.Run(t, func(t *testing.T) guardtest.Store {
		of := func(r string) *fileguard.Guard {
			g, err := fileguard.New(filepath.Join(dir, r))
			if err != nil {
				panic(err)
			}
			return g
		}
		// A refusal names the file.
		named := func(err error, r string) error {
			if stale, ok := err.(*fencing.StaleError); ok { //nolint:errorlint // nothing is wrapped around it
				stale.Resource = r
			}
			return err
		}
		return guardtest.Store{
			Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
				return named(of(r).WriteFile(ctx, token, []byte(value), 0o600), r)
			},
			Raise: func(ctx context.Context, r string, token fencing.Token) error {
				return named(of(r).Raise(ctx, token), r)
			},
			Read: func(_ context.Context, r string) (string, error) {
				data, err := os.ReadFile(filepath.Join(dir, r))
				if errors.Is(err, fs.ErrNotExist) {
					err = nil
				}
				return string(data), err
			},
			Mark:  func(ctx context.Context, r string) (fencing.Token, error) { return of(r).Mark(ctx) },
			State: func() any { return list(t, dir) }, // not a byte, an inode or a time
		}
	})
}
