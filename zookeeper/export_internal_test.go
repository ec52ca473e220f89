package zookeeper

// Encode is how the tests know a lock's node.
var Encode = encode
