package etcd_test

import (
	"testing"

	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
)

// What months bring, within minutes.
func TestAgeing(t *testing.T) {
	lab.NeedProve(t)
	campaign.Ages(t, "etcd", etcd.Openers)
}
