package single

import (
	_ "embed"
	"strconv"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisnode"
)

var (
	//go:embed tokens.lua
	tokensLua string
	//go:embed take.lua
	takeLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed pass.lua
	passLua string
	//go:embed unline.lua
	unlineLua string
	//go:embed renew.lua
	renewLua string
	//go:embed raise.lua
	raiseLua string

	// Of locks that many hold together.

	//go:embed sharers.lua
	sharersLua string
	//go:embed share.lua
	shareLua string
	//go:embed stay.lua
	stayLua string
	//go:embed leave.lua
	leaveLua string
	//go:embed remain.lua
	remainLua string
	//go:embed dissolve.lua
	dissolveLua string
)

// turnTime is how long a lock that was released is kept for the client that waited longest: the message has to
// reach it and its request has to come back, also from another continent, since a client to which both take
// longer gets no turn beside busy ones that are near; and if it does not come, so much is lost.
const turnTime = 200 * time.Millisecond

var (
	turnLua = "local TURN_MS = " + strconv.FormatInt(turnTime.Milliseconds(), 10)
	mostLua = "local MOST = " + strconv.Itoa(driver.MaxSharers)

	acquireText  = redisnode.Text(tokensLua, sharersLua, takeLua, acquireLua)
	shareText    = redisnode.Text(mostLua, tokensLua, sharersLua, takeLua, shareLua)
	passText     = redisnode.Text(turnLua, tokensLua, passLua)
	unlineText   = redisnode.Text(unlineLua)
	renewText    = redisnode.Text(renewLua)
	stayText     = redisnode.Text(sharersLua, stayLua)
	leaveText    = redisnode.Text(sharersLua, leaveLua)
	remainText   = redisnode.Text(sharersLua, remainLua)
	raiseText    = redisnode.Text(raiseLua)
	dissolveText = redisnode.Text(dissolveLua)
)

// scripts are those of one Backend; their texts are those of all.
type scripts struct {
	acquire, share, pass, unline, renew, stay, leave, remain, raise, dissolve *redisnode.Script
}

func newScripts(publish any, me string) scripts {
	return scripts{
		acquire:  redisnode.NewScript(3, me, acquireText),
		share:    redisnode.NewScript(3, me, shareText),
		pass:     redisnode.NewScript(4, publish, passText).ForOne(),
		unline:   redisnode.NewScript(2, publish, unlineText).ForOne(),
		renew:    redisnode.NewScript(1, "", renewText).Anywhere(),
		stay:     redisnode.NewScript(2, "", stayText).Anywhere(),
		leave:    redisnode.NewScript(4, publish, leaveText),
		remain:   redisnode.NewScript(3, "", remainText),
		raise:    redisnode.NewScript(2, "", raiseText).ForOne(),
		dissolve: redisnode.NewScript(2, publish, dissolveText).ForOne(),
	}
}
