//go:build linux

package localfile

// KindOf is what the type of a file system is called if it is refused.
func KindOf(magic uint32) string { return remoteKinds[magic] }
