package main_test

// The tests that play roles need signals.
const roleArg = "role"

func playRole(string, []string) int { return 98 }

func listenToHangups() {}
