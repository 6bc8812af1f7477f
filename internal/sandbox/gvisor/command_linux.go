package gvisor

import (
	"os"
	"os/exec"
	"syscall"
)
