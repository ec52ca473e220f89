//go:build !race

package main_test

const raceFlag = "-race=false"
