package main

// The program itself, and all that it prints.
func Example() {
	main()

	// Output:
	// alice holds the lock with token 1, and her lease is valid: true
	// bob holds the lock with token 2, and writes
	// alice writes: fencing: stale fencing token 1 for "report": it has seen 2, so a later holder was here
	// the report without a guard is by alice
	// the report behind a guard is by bob
}
