package single

import (
	"embed"
	"strconv"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisnode"
)

//go:embed *.lua
var files embed.FS

// turnTime is how long a lock that was released is kept for the client that waited longest: the message has to
// reach it and its request has to come back, also from another continent, since a client to which both take
// longer gets no turn beside busy ones that are near; and if it does not come, so much is lost.
const turnTime = 200 * time.Millisecond

var (
	turnLua = "local TURN_MS = " + strconv.FormatInt(turnTime.Milliseconds(), 10)
	mostLua = "local MOST = " + strconv.Itoa(driver.MaxSharers)

	acquireText = redisnode.Text(files, "tokens.lua", "sharers.lua", "take.lua", "acquire.lua")
	passText    = redisnode.Text(files, turnLua, "tokens.lua", "pass.lua")
	unlineText  = redisnode.Text(files, "unline.lua")
	renewText   = redisnode.Text(files, "renew.lua")
	raiseText   = redisnode.Text(files, "raise.lua")

	// Of locks that many hold together.

	shareText    = redisnode.Text(files, mostLua, "tokens.lua", "sharers.lua", "take.lua", "share.lua")
	stayText     = redisnode.Text(files, "sharers.lua", "stay.lua")
	leaveText    = redisnode.Text(files, "sharers.lua", "leave.lua")
	remainText   = redisnode.Text(files, "sharers.lua", "remain.lua")
	dissolveText = redisnode.Text(files, "dissolve.lua")
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
