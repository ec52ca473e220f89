package etcd_test

import (
	"testing"

	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/campaign"
)

// What months bring, within minutes.
func TestAgeing(t *testing.T) { campaign.Ages(t, "etcd", etcd.Openers) }
