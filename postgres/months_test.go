package postgres_test

import (
	"testing"

	"github.com/golockers/locker/postgres"
	"github.com/golockers/locker/internal/campaign"
)

// What months bring, within minutes.
func TestAgeing(t *testing.T) { campaign.Ages(t, "postgres", postgres.Openers) }
