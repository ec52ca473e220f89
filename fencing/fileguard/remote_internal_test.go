//go:build linux

package fileguard

// RemoteKind is what the type of a file system is called if it is refused.
func RemoteKind(magic uint32) string { return remoteKinds[magic] }
