//go:build unix

package report

import (
	"os"

	"golang.org/x/sys/unix"
)

// Width returns how many columns the terminal f has, 0 if it is none.
func Width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
