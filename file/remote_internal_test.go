//go:build linux

package file

// RemoteKind is what the type of a file system is called if it is refused.
func RemoteKind(magic uint32) string { return kindOf(magic) }
