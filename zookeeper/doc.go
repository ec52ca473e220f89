package zookeeper
