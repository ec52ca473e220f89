package zookeeper_test

import (
	"testing"

	"github.com/golockers/locker/zookeeper"
	"github.com/golockers/locker/internal/campaign"
)

// What months bring, within minutes.
func TestAgeing(t *testing.T) { campaign.Ages(t, "zookeeper", zookeeper.Openers) }
