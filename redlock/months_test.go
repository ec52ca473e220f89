package redlock_test

import (
	"testing"

	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/internal/campaign"
)

// What months bring, within minutes.
func TestAgeing(t *testing.T) { campaign.Ages(t, "redlock", redlock.Openers) }
