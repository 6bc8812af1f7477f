package memory

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// holes writes a file and leaves holes for pages of zeros: much of what a program has in memory was never touched.
type holes struct {
	f   *os.File
	at  int64
	err error
}

const page = 4096

var zeros [page]byte

func (h *holes) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n := min(page-int(h.at%page), len(p)-done)
		piece := p[done : done+n]
		zero := n == page && bytes.Equal(piece, zeros[:])
		if !zero {
			for done+n < len(p) { // as long a run as there is
				next := p[done+n : min(done+n+page, len(p))]
				if len(next) == page && bytes.Equal(next, zeros[:]) {
					break
				}
				n += len(next)
			}
			if _, err := h.f.WriteAt(p[done:done+n], h.at); err != nil {
				h.err = err
				return done, err
			}
		}
		done += n
		h.at += int64(n)
	}
	return len(p), nil
}

var _ io.Writer = (*holes)(nil)

// onDisk is how many bytes of the disk a file takes.
func onDisk(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(st.Blocks*512, info.Size())
	}
	return info.Size()
}
