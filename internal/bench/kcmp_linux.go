package bench

import "golang.org/x/sys/unix"

// addressSpaces are those that were seen, each by one process that has it.
type addressSpaces struct{ owners []int }

const kcmpVM = 1 // KCMP_VM of kcmp(2)

// has says whether another process with the same address space was seen, and remembers this one if not. Where the kernel does not tell,
// each process counts as one of its own.
func (a *addressSpaces) has(pid int) bool {
	for _, other := range a.owners {
		same, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(other), kcmpVM, 0, 0, 0)
		if errno == 0 && same == 0 {
			return true
		}
	}
	a.owners = append(a.owners, pid)
	return false
}
