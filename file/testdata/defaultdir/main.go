// Command defaultdir prints the default directory for locks, or why there is none.
package main

import (
	"fmt"

	"github.com/golockers/locker/file"
)

func main() { fmt.Println(file.DefaultDir()) }
