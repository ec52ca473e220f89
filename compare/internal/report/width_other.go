//go:build !unix

package report

import "os"

// Width returns how many columns the terminal f has, 0 if it is none or not known.
func Width(*os.File) int { return 0 }
