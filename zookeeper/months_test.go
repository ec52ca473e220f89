package zookeeper_test

import (
	"testing"

	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/zookeeper"
)

// What months bring, within minutes.
func TestAgeing(t *testing.T) {
	lab.NeedProve(t)
	campaign.Ages(t, "zookeeper", zookeeper.Openers)
}
