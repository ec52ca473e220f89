// Package bridgetest tests package bridge on real services. It is here and not there because it needs their drivers.
package bridgetest
