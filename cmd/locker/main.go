// Command locker holds a lock while another command runs, and says who holds one.
//
//	locker run backup -- pg_dump -f /backup/db.sql
//	locker inspect backup
//	locker backends
//
// "locker help run" has the promises, the exit statuses and examples.
package main

import "os"

func main() { os.Exit(run(os.Args[1:])) }
