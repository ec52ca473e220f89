// Command moving moves a lock from one service to another while its holders work. The
// services are two directories of files; any two URLs do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/examples/internal/story"
)

func main() {
	dir, err := os.MkdirTemp("", "moving")
	story.Must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	story.Must(os.Mkdir(filepath.Join(dir, "from"), 0o700))
	story.Must(os.Mkdir(filepath.Join(dir, "to"), 0o700))
	from, to := "file://"+filepath.Join(dir, "from"), "file://"+filepath.Join(dir, "to")

	ctx := context.Background()
	fleet := map[string]*locker.Client{}
	for version, urls := range map[string]string{"before": from, "meanwhile": from + " " + to, "after": to} {
		client, err := backends.Open(ctx, urls, nil)
		story.Must(err)
		defer func() { _ = client.Close() }()
		fleet[version] = client
	}

	var token uint64
	for _, step := range [][2]string{{"before", "meanwhile"}, {"meanwhile", "after"}, {"after", "meanwhile"},
		{"meanwhile", "before"}} {
		for i, holder := range step {
			other := step[1-i]
			lease, err := fleet[holder].TryLock(ctx, "order/42")
			story.Must(err)
			_, err = fleet[other].TryLock(ctx, "order/42")
			now, _ := lease.Token()
			fmt.Printf("%s holds, %s is refused: %v, the token rises: %v\n", holder, other,
				errors.Is(err, locker.ErrHeld), now > token)
			token = now
			story.Must(lease.Unlock(ctx))
		}
	}

	// Without the step in the middle:
	one, err := fleet["before"].TryLock(ctx, "order/42")
	story.Must(err)
	two, err := fleet["after"].TryLock(ctx, "order/42")
	fmt.Println("before and after hold it at the same time:", one.Err() == nil && err == nil && two.Err() == nil)
}
