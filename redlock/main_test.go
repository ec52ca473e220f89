package redlock_test

import (
	"testing"

	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) { lab.Main(m, lab.Roles{}) }
