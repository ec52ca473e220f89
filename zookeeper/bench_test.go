package zookeeper_test

import "github.com/golockers/locker/internal/testserver"

func benchRole(*testserver.Parent) {}
