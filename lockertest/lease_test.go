package lockertest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/lockertest"
)

// given is a Locker for a test, which has one lease to give.
type given struct {
	locker.Locker
	lease *locker.Lease
}

func (g given) Lock(context.Context, string, ...locker.Option) (*locker.Lease, error) {
	return g.lease, nil
}

// A test decides when a lease ends, without a backend.
func ExampleNewLease() {
	lease, lose, err := lockertest.NewLease("report", driver.Grant{Token: 7})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = locker.Do(context.Background(), given{lease: lease}, "report", func(ctx context.Context) error {
		lose()
		<-ctx.Done() // as the code under test should
		return nil
	})
	fmt.Println("lost:", errors.Is(err, locker.ErrLost))
	// Output:
	// lost: true
}

// A lock that is taken away ends the lease of its holder.
func ExampleService_Lose() {
	ctx := context.Background()
	service := lockertest.NewService()
	client, err := locker.New(service, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	lease, err := client.Lock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	service.Lose("report")
	<-lease.Done()
	fmt.Println("lost:", errors.Is(lease.Err(), locker.ErrLost))
	// Output:
	// lost: true
}

func TestNewLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, lose, err := lockertest.NewLease("a", driver.Grant{Token: 7}, locker.Shared())
		require.NoError(t, err)
		token, _ := lease.Token()
		assert.EqualValues(t, 7, token)
		assert.True(t, lease.Shared())
		time.Sleep(time.Hour)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Unlock(t.Context()))
		lose()
		require.ErrorIs(t, lease.Err(), locker.ErrUnlocked)

		began := time.Now()
		lease, _, err = lockertest.NewLease("a", driver.Grant{Validity: driver.Validity{Since: began, TTL: time.Minute}})
		require.NoError(t, err)
		<-lease.Done()
		assert.InDelta(t, time.Minute, time.Since(began), float64(time.Second), "it ends as it was granted")
		for name, g := range map[string]driver.Grant{"": {}, "since": {Validity: driver.Validity{TTL: time.Minute}},
			"ttl": {Validity: driver.Validity{Since: began, TTL: -1}}, "token": {Token: locker.MaxToken + 1}} {
			_, lose, err = lockertest.NewLease(name, g)
			require.ErrorIs(t, err, locker.ErrInvalid, name)
			lose() // nothing
		}
	})
}
