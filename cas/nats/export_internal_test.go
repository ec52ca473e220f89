package nats

// Subject is that of a lock's record.
func Subject(bucket, key string) string { return (&Store{bucket: bucket}).subject(key) }

// Own makes the connection one of the Store's, as Open does.
func Own(s *Store) { s.owned = true }
