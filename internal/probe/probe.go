// Package probe is for locker check, which leaves nothing behind in a service.
package probe

import "context"

// Remains removes what a service keeps of a name when its lock is gone, such as its last
// token. A hold gives it as the target of As. Nobody may ask for the name again, since its
// tokens would begin anew.
type Remains func(context.Context) error
