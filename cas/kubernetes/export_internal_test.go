package kubernetes

// Object is the name of a lock's Lease.
func Object(key string) string { return object(key) }

// SetPod makes a directory that where a Pod has its credentials.
func SetPod(dir string) (reset func()) {
	was := podCredentials
	podCredentials = dir
	return func() { podCredentials = was }
}
