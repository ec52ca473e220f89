//go:build unix && !linux

package main

// adopts is false: only Linux lets a process inherit the orphans of what it has started. init does.
const adopts = false

func adoptOrphans() {}

// endWithParent has nothing to do: only Linux ends a process with its parent.
func endWithParent() {}

func children() []int { return nil }
