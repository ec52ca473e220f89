package lab

// TB is what a server or a proxy needs of whoever started it: a *testing.T, or
// a program that is no test, such as locker compare. Fatalf and Skip do not return.
type TB interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
	Skip(args ...any)
	Failed() bool
	FailNow()
}

// Again repeats what depends on the machine's not being too busy.
func Again(t TB, try func() bool) {
	t.Helper()
	for range 10 {
		if try() {
			return
		}
	}
	t.Fatalf("not once in ten times: the machine is too busy, or the code is broken")
}
