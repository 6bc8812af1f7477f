// Command lathe is the gateway: the server, and the commands around it. Everything is put together in wire.go, which alone knows the
// implementations.
package main

import "os"

func main() {
	os.Exit(execute(os.Args[1:], &terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv}))
}
