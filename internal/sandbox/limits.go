package sandbox

import "time"

// Limits is everything that a sandbox may take. This is the one place where a limit is declared.
//
// To add a limit: a field here with its unit and the meaning of zero, its default in Defaults, its enforcement in the backend or the
// guest, and a case in sandboxtest that exceeds it.
type Limits struct {
	// Memory in bytes. The program gets MemoryError somewhat below it (rlimit); past it the sandbox is killed (cgroup, with root).
	Memory int64
	// Disk in bytes of the container's volume. ENOSPC beyond it with root; for ordinary users see lathe doctor.
	Disk int64
	// FileSize in bytes of one file (RLIMIT_FSIZE); 0 is Disk.
	FileSize int64
	// CPUs is a share of processors; 0.5 is half of one.
	CPUs float64
	// Processes and threads of the program together (RLIMIT_NPROC).
	Processes int
	// ExecTime of one call.
	ExecTime time.Duration
	// Output in bytes of one call, all streams together; what is beyond is dropped and counted.
	Output int64
}

// Defaults are the limits of an empty configuration.
func Defaults() Limits {
	return Limits{
		Memory: 1 << 30, Disk: 5 << 30, CPUs: 1, Processes: 256,
		ExecTime: 2 * time.Minute, Output: 16 << 20,
	}
}
