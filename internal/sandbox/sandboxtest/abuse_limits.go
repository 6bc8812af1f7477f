package sandboxtest

import "github.com/lathe-gateway/lathe/internal/sandbox"

// again is what fork says at the limit of processes; bash says it in words.
const again = `BlockingIOError|Resource temporarily unavailable|can't start new thread|EAGAIN`

// processAbuse wants 60 or more processes or threads at once; 40 are allowed.
func processAbuse() []abuse {
	const kill = "\nimport os, signal\nfor p in ps: os.kill(p, signal.SIGKILL)\nfor p in ps: os.waitpid(p, 0)"
	cell := func(name, code string) abuse { return abuse{name: name, kind: sandbox.Python, code: code, held: again} }
	own := func(name, code string) abuse {
		return abuse{name: name, kind: sandbox.Bash, code: script(code), held: again}
	}
	return []abuse{
		cell("spawned", `import os
ps = []
try:
    for _ in range(60): ps.append(os.posix_spawn('/bin/sleep', ['sleep', '100'], os.environ))
    print('BIT')
except OSError as e: print(type(e).__name__)`+kill),
		own("forked", `import os, time
ps = []
try:
    for _ in range(60):
        p = os.fork()
        if p == 0: time.sleep(100); os._exit(0)
        ps.append(p)
    print('BIT')
except OSError as e: print(type(e).__name__)`+kill),
		own("a tree of forks", `import os, time
r, w = os.pipe()
try:
    for _ in range(6): os.fork()
    os.write(w, b'x')
except OSError as e: os.write(w, b'!')
os.close(w)
time.sleep(2)
os.set_blocking(r, False)
try: got = os.read(r, 200)
except OSError: got = b''
if b'!' in got: print('EAGAIN', flush=True)
elif len(got) == 64: print('BIT', flush=True)`),
		cell("threads", `import threading
stop, ts = threading.Event(), []
try:
    for _ in range(60):
        th = threading.Thread(target=stop.wait); th.start(); ts.append(th)
    print('BIT')
except RuntimeError as e: print(e)
stop.set()
for th in ts: th.join()`),
		own("threads of several processes", `import os, threading, time
r, w = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        try:
            for _ in range(16): threading.Thread(target=time.sleep, args=(2,)).start()
            os.write(w, b'x')
        except RuntimeError: os.write(w, b'!')
        time.sleep(3); os._exit(0)
got = b''
while len(got) < 4: got += os.read(r, 4)
print('BIT' if got == b'xxxx' else 'EAGAIN')`),
		own("zombies", `import os
try:
    for _ in range(60): os.posix_spawn('/bin/true', ['true'], {})
    print('BIT')
except OSError as e: print(type(e).__name__)`),
		own("orphans", `import os, time
r, w = os.pipe()
for _ in range(60):
    try: p = os.fork()
    except OSError: os.write(w, b'!'); break
    if p == 0:
        os.setsid()
        try:
            if os.fork() == 0:
                os.write(w, b'x'); time.sleep(3)
        except OSError: os.write(w, b'!')
        os._exit(0)
    os.waitpid(p, 0)
time.sleep(0.5)
got = os.read(r, 100)
print('BIT' if got == b'x' * 60 else 'EAGAIN' if b'!' in got else got)`),
		{name: "background jobs of a shell", kind: sandbox.Bash, held: "(?s)" + again + `|status.*timeout|timeout`, timeout: 3e9,
			code: "for i in $(seq 60); do sleep 20 & done; [ $(jobs -r | wc -l) = 60 ] && echo BIT; kill $(jobs -p)"},
		own("a subprocess in each thread", `import subprocess, threading
ps, errors = [], []
def one():
    try: ps.append(subprocess.Popen(['sleep', '100']))
    except OSError as e: errors.append(type(e).__name__)
try:
    for _ in range(60):
        th = threading.Thread(target=one); th.start(); th.join()
except RuntimeError as e: errors.append(str(e))
print(errors[:1] if errors else ''); len(ps) == 60 and print('BIT')
for p in ps: p.kill(); p.wait()`),
	}
}

// memoryAbuse wants more than the 256 MiB that the guarded sandbox has.
func memoryAbuse() []abuse {
	const short = `MemoryError|Cannot allocate memory|cannot allocate|No space left|Unable to allocate|Errno 12|xrealloc|Killed|killed`
	own := func(name, code string) abuse {
		return abuse{name: name, kind: sandbox.Bash, code: script(code + "\nprint('BIT')"), held: short}
	}
	fatal := func(name, code string) abuse {
		c := own(name, code)
		c.dies = true
		return c
	}
	return []abuse{
		own("bytearray", "x = bytearray(320 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"),
		own("bytearrays", "x = [bytearray(b'x' * (1 << 20)) for _ in range(320)]"),
		own("a string that doubles", "x = 'x'\nwhile len(x) < 300 << 20: x += x"),
		own("a list that doubles", "x = [1]\nwhile len(x) < 40 << 20: x += x"),
		own("dictionary", "x = {i: str(i) for i in range(3_000_000)}"),
		own("a large number", "x = 1 << (8 * 300 << 20)"),
		own("private map", "import mmap\nm = mmap.mmap(-1, 320 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nfor i in range(0, len(m), 4096): m[i] = 1"),
		own("shared map", "import mmap\nm = mmap.mmap(-1, 320 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1"),
		own("maps that grow", "import mmap\nm = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nm.resize(320 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1"),
		own("malloc", "import ctypes\nc = ctypes.CDLL(None)\nc.malloc.restype = ctypes.c_void_p\np = c.malloc(ctypes.c_size_t(320 << 20))\n"+
			"if not p: raise MemoryError\nctypes.memset(p, 1, 320 << 20)"),
		own("decompression", "import zlib\nx = zlib.compress(bytes(10 << 20))\nx = [zlib.decompress(x) for _ in range(32)]"),
		own("stack of a thread", "import threading\nthreading.stack_size(320 << 20)\ntry: threading.Thread(target=print).start()\nexcept RuntimeError: raise MemoryError"),
		own("System V memory", "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\nc.shmat.restype = ctypes.c_void_p\ni = c.shmget(0, ctypes.c_size_t(320 << 20), 0o1600)\n"+
			"p = c.shmat(i, None, 0)\nc.shmctl(i, 0, None)\nif i < 0 or p == ctypes.c_void_p(-1).value: raise MemoryError(ctypes.get_errno())\nctypes.memset(p, 1, 320 << 20)"),
		own("tmpfs", "with open('/tmp/x', 'wb') as f:\n    for _ in range(320): f.write(b'x' * (1 << 20))"),
		own("shm", "with open('/dev/shm/x', 'wb') as f:\n    for _ in range(320): f.write(b'x' * (1 << 20))"),
		own("shared memory of multiprocessing", "from multiprocessing import shared_memory\nimport os\ns = shared_memory.SharedMemory(create=True, size=320 << 20)\n"+
			"os.posix_fallocate(s._fd, 0, 320 << 20)\ns.unlink()"),
		{name: "numpy", kind: sandbox.Python, held: short, code: "import numpy\nx = numpy.ones(320 << 17)\nx = None\nprint('BIT')"},
		{name: "a variable of a shell", kind: sandbox.Bash, held: short, code: "printf -v x '%*s' 67108864 '' && y=$x$x$x$x$x && [ ${#y} -gt 300000000 ] && echo BIT"},
		fatal("memory files", "import os\nfor _ in range(5):\n    f = os.memfd_create('m')\n    for _ in range(64): os.write(f, b'x' * (1 << 20))"),
		fatal("many processes", `import os
r, w = os.pipe()
for i in range(4):
    if os.fork() == 0:
        x = bytearray(b'x' * (90 << 20))
        os.write(w, b'x')
        import time; time.sleep(5); os._exit(0)
os.close(w)
got = b''
while len(got) < 4: 
    more = os.read(r, 4)
    if not more: raise MemoryError
    got += more`),
	}
}
