package redisguard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
	"github.com/golockers/locker/memory"
)

// The lock is one of this process here, to have no more than one server in the
// example; it could be of any backend that has tokens.
func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379")})
	defer client.Close()
	guard, err := redisguard.New(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := locker.New(memory.New(), nil)
	defer locks.Close()

	pay := redisguard.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")
	state := []string{"{orders/42}:state"}

	// One that is paused after it got its token, and goes on when its lock is another's.
	var paused fencing.Token
	for _, who := range []string{"first", "second"} {
		err := fencing.Do(ctx, locks, "orders/42", func(ctx context.Context) error {
			token, err := fencing.TokenFor(ctx, "orders/42")
			if err != nil {
				return err
			}
			if who == "first" {
				paused = token
				return nil
			}
			return guard.Run(ctx, "orders/42", token, pay, state, "paid by the "+who).Err()
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	err = guard.Run(ctx, "orders/42", paused, pay, state, "paid by the first").Err()
	fmt.Println("refused:", errors.Is(err, fencing.ErrStale))
	fmt.Println(client.Get(ctx, "{orders/42}:state").Val())

	// Any script can be guarded.
	ship := redisguard.NewScript(`
		if redis.call('GET', KEYS[1]) == ARGV[1] then
			return redis.call('RPUSH', KEYS[2], 'parcel')
		end
		return 0`)
	keys := []string{"{orders/42}:state", "{orders/42}:parcels"}
	err = fencing.Do(ctx, locks, "orders/42", func(ctx context.Context) error {
		token, err := fencing.TokenFor(ctx, "orders/42")
		if err != nil {
			return err
		}
		n, err := guard.Run(ctx, "orders/42", token, ship, keys, "paid by the second").Int()
		fmt.Println("parcels:", n)
		return err
	})
	fmt.Println("error:", err)

	// refused: true
	// paid by the second
	// parcels: 1
	// error: <nil>
}
