package single_test

import (
	"testing"

	"github.com/golockers/locker/single"
	"github.com/golockers/locker/internal/campaign"
)

// What months bring, within minutes.
func TestAgeing(t *testing.T) { campaign.Ages(t, "redis", single.Openers) }
