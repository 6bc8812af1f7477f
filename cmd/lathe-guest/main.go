// Command lathe-guest is the program that is PID 1 inside a sandbox. It is built statically into lathe and not meant to be run by hand.
package main

import (
	"os"

	"github.com/lathe-gateway/lathe/internal/guest"
)

func main() { os.Exit(guest.Main()) }
