package redlock_test

import (
	"testing"

	"github.com/golockers/locker/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m, testserver.Roles{}) }
