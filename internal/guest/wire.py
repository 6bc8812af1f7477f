"""The kernel's end of the wire to the guest, its standard streams, and SIGINT. Part of kernel.py, which makes wire, OUT and ERR."""
import io
import os
import sys
from _thread import RLock, get_ident

CHUNK, LARGEST = 256 << 10, 12 << 20
PING, HELLO, START, WARM, RENEW, STARTED, OUTPUT, DISPLAY, RESULT, RESUME, CALLS = 1, 2, 3, 4, 5, 6, 8, 9, 12, 14, 15
SPAWNS = frozenset(("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "pty.spawn"))
STDERR, VALUE, DISPLAYED = b"\2", b"\3", b"\4"
MAIN = get_ident()


class Wire:
    """The channel to the guest, and with it SIGINT: a KeyboardInterrupt comes only in user code. While the channel is in use it would
    garble that, and in the engine it would leave locks taken, so there it is put off until the next user code of the cell."""

    def __init__(self):
        self.requests, self.messages, self.pipes = private(3), private(4), private(5)
        self.ahead = bytearray()  # read, but not yet asked for
        self.call = bytes(4)
        self.lock, self.depth = RLock(), 0
        self.busy = self.running = self.pending = False  # in a cell; in its user code; with an interrupt to come
        self.alive = True  # False in a forked child, which must not talk
        self.last = None  # the Stream that was written to last, or this
        self.spawned = False  # a program has been started since the last answer
        self.earlier = frozenset()  # threads of earlier cells, until one of them has printed in this one

    def __enter__(self):
        if get_ident() == MAIN:
            self.depth += 1
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        if get_ident() == MAIN:
            self.depth -= 1
            self.check()

    def interrupted(self, *_):
        self.pending = self.busy
        self.check()

    def check(self):
        if self.pending and self.running and not self.depth:
            self.pending = False
            raise KeyboardInterrupt

    def audit(self, event, _):
        if event in SPAWNS:
            self.spawned = True

    def forked(self):
        self.alive, self.lock = False, RLock()  # another thread may have held it

    def send(self, kind, payload=b""):
        if not self.alive:
            return
        with self:
            head = len(payload).to_bytes(4, "big") + bytes((kind,)) + self.call
            view = memoryview(head + payload)
            while view:
                view = view[os.write(self.messages, view):]

    def receive(self):
        """Returns type and payload of the next request; the type is 0 at the end."""
        head = self.exactly(9)
        if not head:
            return 0, b""
        if head[4] != HELLO:
            self.call = head[5:9]
        return head[4], self.exactly(int.from_bytes(head[:4], "big"))

    def exactly(self, size):
        """Returns that many bytes, or none at the end. It reads what is there, so that a small request takes one read."""
        while len(self.ahead) < size:
            part = os.read(self.requests, max(size - len(self.ahead), 1 << 16))
            if not part:
                return b""
            self.ahead += part
        found, self.ahead = bytes(self.ahead[:size]), self.ahead[size:]
        return found

    def sync(self):
        """Returns when the guest has taken all that is in the pipes of fds 1 and 2."""
        if not self.alive:
            return
        with self:
            if self.busy:  # between cells the main thread is the one that reads
                self.send(PING)
                self.receive()

    def turn(self, stream):
        """Called when another stream is written to than before: keeps the order between the two."""
        last, self.last = self.last, stream
        if last is not None:
            if last is not self:
                last.flush()
            self.sync()

    def text(self, stream, text):
        flush()
        data = text.encode("utf-8", "backslashreplace")
        for at in range(0, len(data), CHUNK):
            self.send(OUTPUT, stream + data[at:at + CHUNK])
        self.last = self  # what is printed next must not be drained before this
        if stream == DISPLAYED:
            self.sync()

    def image(self, mime, data):
        if len(data) > LARGEST:
            return self.text(STDERR, f"an image of {len(data)} bytes is too large to be shown\n")
        flush()
        self.send(DISPLAY, bytes((len(mime),)) + mime.encode() + bytes(data))
        self.last = self
        self.sync()


class UserCode:
    """The context in which SIGINT is a KeyboardInterrupt."""

    def __enter__(self):
        wire.running = True

    def __exit__(self, *_):
        wire.running = False


def unlist(payload):
    items, at = [], 0
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at:at + 4], "big")
        items.append(payload[at + 4:end].decode("utf-8", "surrogateescape"))
        at = end
    return items


def private(fd):
    """Moves a channel out of the way of programs that close or reuse small descriptors, and of child processes."""
    import fcntl
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(fd)
    return high


class Stream(io.TextIOWrapper):
    def __init__(self, fd):
        raw = io.FileIO(fd, "w", closefd=False)
        super().__init__(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self.mode = "w"

    def write(self, text):
        if wire.last is not self:
            wire.turn(self)
        if wire.earlier and get_ident() in wire.earlier:
            wire.earlier = frozenset()
            super().write("[a thread that an earlier call started prints here too]\n")
        return super().write(text)


class Pipes:
    """What the guest reads of fds 1 and 2, kept apart from them: a cell that closed or redirected them must not silence those after it."""

    def __init__(self):
        import fcntl
        self.kept = [(fd, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200), self.identity(fd)) for fd in (1, 2)]

    @staticmethod
    def identity(fd):
        try:
            found = os.fstat(fd)
            return found.st_dev, found.st_ino
        except OSError:
            return None

    def renew(self):
        """Takes new pipes from the guest, since programs of earlier cells still write to the old ones."""
        import _socket
        channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, wire.pipes)
        try:
            sent = channel.recvmsg(1, _socket.CMSG_SPACE(8))[1][0][2]
        finally:
            channel.detach()
        for at, (fd, kept, _) in enumerate(self.kept):
            pipe = int.from_bytes(sent[4 * at:4 * at + 4], sys.byteorder)
            os.dup2(pipe, fd)
            os.dup2(pipe, kept, False)
            os.close(pipe)
        self.kept = [(fd, kept, self.identity(fd)) for fd, kept, _ in self.kept]

    def mend(self):
        """Puts both back, and sys.stdout and sys.stderr where they can no longer be written to. False means that it cannot be done."""
        for fd, kept, was in self.kept:
            if self.identity(kept) != was:
                return False
            if self.identity(fd) != was:
                os.dup2(kept, fd)
        for name, own in (("stdout", OUT), ("stderr", ERR)):
            stream = getattr(sys, name, None)
            if stream is not own and (not hasattr(stream, "write") or getattr(stream, "closed", False)):
                setattr(sys, name, own)
        return not (OUT.closed or ERR.closed)


def replaced():
    """Tells of a sys.stdout that keeps what is printed to itself: with it calls seem to print nothing, for as long as it stands."""
    if isinstance(getattr(sys, "stdout", None), io.StringIO):
        wire.text(STDERR, "[sys.stdout is a StringIO and takes what is printed; undo: sys.stdout = sys.__stdout__]\n")


def flush():
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None), OUT, ERR):
        try:
            stream.flush()
        except Exception:
            pass
    if "ctypes" in sys.modules:
        try:
            sys.modules["ctypes"].CDLL(None).fflush(None)
        except Exception:
            pass
