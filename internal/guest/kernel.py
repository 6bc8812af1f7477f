"""Lathe's Python kernel: one long-lived interpreter that runs cells for the guest.

It is started by internal/guest (kernel.go) and talks with it in the frames of internal/guest/proto, requests on fd 3 and messages on fd 4;
what is written to fds 1 and 2 the guest takes from pipes. Payloads: START is a list (code, directory, names of functions one a line, "1"
where new pipes for fds 1 and 2 come over fd 5, then names and values of the environment), WARM a list of modules, RENEW a list ("1" in a
fresh container, then names and values of the environment); each is answered by RESULT: status NUL exit code, with a "+" if other programs
were started, NUL error. In place of it a START may be answered by CALLS, a list (number, name, arguments) for each call of such a
function; the program waits then for RESUME, a list ("results", "timeout" or "interrupt", then number, "1" for an error, and text of
each), which is answered as a START is.
Before the code of a START runs comes STARTED: from then until RESULT, and no earlier, the guest may send SIGINT.
PING asks the guest to drain fds 1 and 2 and is answered by HELLO; HELLO to the guest says that the kernel is ready, and which one.

The guest drains fds 1 and 2 before it acts on a frame, so a display or a result never overtakes what was printed before it.
The sources of wire.py, display.py and calls.py stand before this file's, in one namespace. IPython's InteractiveShell runs the cells where
it is installed, else Plain below. Everything that is not needed to start is imported late.
"""
import builtins
import os
import signal
import sys
import types

HERE = __file__ = "<lathe kernel>"


def describe(error):
    try:
        text = str(error)
    except BaseException:
        text = "<exception str() failed>"
    return type(error).__name__ + (": " + text if text else "")


def verdict(error):
    """Status, exit code and error text of a cell that ended with error (None for none)."""
    if error is None:
        return b"ok", 0, ""
    if not isinstance(error, SystemExit):
        return b"error", 1, describe(error)
    if error.code is None or error.code == 0:
        return b"ok", 0, ""
    if isinstance(error.code, int):
        return b"error", error.code & 0xFF, describe(error)
    wire.text(STDERR, str(error.code) + "\n")
    return b"error", 1, describe(error)


def leave(code=None):
    raise SystemExit(code)


def no_input(prompt="", /):
    raise EOFError("input() is not available here: nobody can answer; put the value into the code")


class Reserve:
    """Address space that is given back to tell of a MemoryError while what caused it is still held. With none left at all, CPython 3.11
    searches for the handler for ever: it cannot make the number of the instruction that it wants to push for it."""

    SIZE = 2 << 20
    held = None

    def take(self):
        if self.held is None:
            try:
                room = bytearray(self.SIZE)  # as much again must be left, for the cell that frees what is in the way
                self.held = bytearray(self.SIZE)
                del room
            except MemoryError:
                pass

    def free(self):
        self.held = None


def traceback(error):
    """Sends a plain traceback of the user's frames."""
    from traceback import format_exception
    tb = error.__traceback__
    while tb is not None and (tb.tb_frame.f_code.co_filename == HERE or "/IPython/core/" in tb.tb_frame.f_code.co_filename):
        tb = tb.tb_next
    wire.text(STDERR, "".join(format_exception(type(error), error, tb)))


class Plain:
    """Runs cells without IPython. run returns the exception that ended the cell, or None, here as in the engine below."""

    flavour = b"plain"

    def __init__(self, figures):
        for name in ("ast", "linecache", "traceback"):  # now, since a file of the user's may have such a name
            __import__(name)
        self.figures, self.count, self.flags, self.loop = figures, 0, 0, None
        main = types.ModuleType("__main__")
        main.__builtins__ = builtins
        sys.modules["__main__"] = main
        self.names = main.__dict__  # of programs; also in the engine below
        builtins.display, builtins.exit, builtins.quit = self.display, leave, leave
        sys.displayhook = self.displayhook

    def run(self, code):
        try:
            self.execute(code)
        except SystemExit as error:
            return error
        except BaseException as error:
            reserve.free()
            traceback(error)
            return error
        return None

    def warm(self):
        pass

    def renew(self):
        pass

    def execute(self, code):
        import ast
        import linecache
        self.count += 1
        name = f"<cell {self.count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        flags = self.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(code, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Interactive([tree.body.pop()])
        for part, mode in ((tree, "exec"), (last, "single")):
            if part is not None and part.body:
                compiled = compile(part, name, mode, flags, dont_inherit=True)
                self.flags |= compiled.co_flags & FUTURES
                self.step(compiled)

    def step(self, compiled):
        with UserCode():
            wire.check()
            self.evaluate(compiled)

    def evaluate(self, compiled):
        if not compiled.co_flags & 0x80:  # CO_COROUTINE
            exec(compiled, self.names)
            return
        import asyncio
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(eval(compiled, self.names))

    def displayhook(self, value):
        if value is not None:
            self.names["_"] = value
            self.show(VALUE, value)

    def display(self, *values, **_):
        for value in values:
            self.show(DISPLAYED, value)

    def show(self, stream, value):
        module = sys.modules.get("matplotlib.figure")
        if module is not None and isinstance(value, module.Figure):
            return self.figures.show_one(value)
        png = getattr(type(value), "_repr_png_", None)
        data = png(value) if png is not None else None
        emit(stream, {"image/png": data} if data else {"text/plain": repr(value)})


# The compiler flags of "from __future__" statements, which hold for later cells.
FUTURES = 0x1FE0000


def ipython(figures):
    """Returns the engine over IPython's InteractiveShell. Raises ImportError where there is none."""
    import importlib.util
    if importlib.util.find_spec("IPython") is None:
        raise ImportError
    import tempfile
    sys.modules["jedi"] = None  # only completion would use it, and it takes a third of the start
    try:
        from IPython.core.displayhook import DisplayHook
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config
    finally:
        del sys.modules["jedi"]

    class Hook(DisplayHook):
        def write_output_prompt(self):
            pass

        def compute_format_data(self, result):
            if type(result).__module__ != "builtins":
                return super().compute_format_data(result)
            # Numbers, texts and lists have no other form; asking all formatters takes as long as the rest of a small cell.
            return {"text/plain": self.shell.display_formatter.formatters["text/plain"](result)}, {}

        def write_format_data(self, format_dict, md_dict=None):
            emit(VALUE, format_dict)

    class Publisher(DisplayPublisher):
        def publish(self, data, *_, **__):
            emit(DISPLAYED, data)

        def clear_output(self, wait=False):
            pass

    class Shell(InteractiveShell):
        displayhook_class = Hook
        display_pub_class = Publisher

        def showtraceback(self, exc_tuple=None, *args, **kwargs):
            reserve.free()
            kind, error = (exc_tuple or sys.exc_info())[:2]
            if issubclass(kind, KeyboardInterrupt):
                # The first of IPython's tracebacks takes longer than the guest waits after an interrupt.
                traceback(error)
            elif not issubclass(kind, SystemExit):
                super().showtraceback(exc_tuple, *args, **kwargs)

        def _showtraceback(self, etype, evalue, stb):
            wire.text(STDERR, self.InteractiveTB.stb2text(stb) + "\n")

        async def run_code(self, *args, **kwargs):
            with UserCode():
                wire.check()
                return await super().run_code(*args, **kwargs)

        def ask_exit(self):
            raise SystemExit

        def enable_matplotlib(self, gui=None):
            return gui, "agg"

        def system(self, cmd):
            import subprocess
            cmd = self.var_expand(cmd, depth=1)
            flush()
            self.user_ns["_exit_code"] = subprocess.call(cmd, shell=True, executable=os.environ.get("SHELL"))

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    # Not a random name: it would be the same in all sandboxes that are restored from one image.
    config.InteractiveShell.ipython_dir = os.path.join(tempfile.gettempdir(), f".ipython-{os.getpid()}")
    config.InteractiveShell.banner1 = ""
    shell = Shell.instance(config=config)
    shell.display_formatter.active_types = ["text/plain", "text/markdown", "text/latex", "image/png", "image/jpeg"]
    png = shell.display_formatter.formatters["image/png"]
    png.for_type_by_name("matplotlib.figure", "Figure", figures.png)
    import warnings
    warnings.filterwarnings("ignore", message="To exit: use")
    folders = [folder for folder, *_ in os.walk(shell.ipython_dir)]

    class Engine:
        flavour = b"ipython"
        names = shell.user_ns

        def run(self, code):
            result = shell.run_cell(code, store_history=True)
            return result.error_before_exec or result.error_in_exec

        def warm(self):
            try:
                raise ValueError
            except ValueError:
                shell.InteractiveTB.structured_traceback(*sys.exc_info())

        def renew(self):
            for folder in folders:  # /tmp may be another one
                os.makedirs(folder, exist_ok=True)

    return Engine()


def environment(env):
    """Sets a call's variables in the place of those of the call before."""
    global outer
    for name, value in outer.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    outer = {name: os.environ.get(name) for name in env}
    os.environ.update(env)


def installable():
    """Lets what pip installs in a cell be imported in the same one: where the network is there pip works, and writes to HOME."""
    try:
        import site
        path = site.getusersitepackages()
        if path not in sys.path:
            os.makedirs(path, exist_ok=True)
            site.addsitedir(path)
    except OSError:
        pass


def cell(engine, figures, code, where, functions, env):
    environment(env)
    if "PIP_CERT" in env:
        installable()
    tools.offer(functions.split(), engine)
    reserve.take()
    if where:
        os.chdir(where)
    signal.signal(signal.SIGINT, wire.interrupted)
    figures.shown, wire.last = [], None
    wire.earlier = frozenset(sys._current_frames()) - {MAIN}
    error = None
    try:
        wire.busy = True
        wire.send(STARTED)
        try:
            error = engine.run(code)
        except Exception as broken:
            # The engine catches what a cell raises, so this is its own: a program has broken it, and every later cell would end here.
            lose("the interpreter no longer works: " + describe(broken))
        if wire.alive:
            with UserCode():
                wire.check()
                figures.flush()
            replaced()
    except BaseException as late:
        # An interrupt that the engine did not catch, or a figure that cannot be drawn.
        wire.running = False
        reserve.free()
        wire.text(STDERR, describe(late) + "\n")
        error = error or late
    finally:
        wire.running = wire.busy = wire.pending = False
    return verdict(error)


def lose(why):
    """Gives this interpreter up; the guest starts another one."""
    if wire.alive:
        wire.text(STDERR, why + "\n")
    os._exit(70)


def warm(engine, modules):
    import importlib
    engine.warm()
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:
            missing.append(f"{name}: {describe(error)}")
    try:
        exercise()
    except BaseException as error:
        missing.append(describe(error))
    import gc
    gc.collect()
    gc.freeze()  # what is imported stays: no collection need look at it again
    return b"ok", 0, "; ".join(missing)


def exercise():
    """Does once what is slow the first time, so that restored copies need not: a plot, a table."""
    pyplot, pandas = sys.modules.get("matplotlib.pyplot"), sys.modules.get("pandas")
    if pyplot is not None:
        figure = pyplot.figure()
        figure.gca().plot([1, 2])
        figure.savefig(io.BytesIO(), format="png", bbox_inches="tight")
        pyplot.close(figure)
    if pandas is not None:
        repr(pandas.DataFrame({"a": [1.5], "b": ["c"]}).describe())


# Modules that have a random generator of their own for all their users, under a function "seed".
SEEDED = ("random", "numpy.random", "sympy.core.random", "torch")


def renewal(payload):
    fresh, *env = unlist(payload)
    return fresh == "1", dict(zip(env[::2], env[1::2]))


def renew(engine, fresh, env):
    """New randomness after a restore, of which there may be several from one image. What a program may have chosen itself is left alone
    unless none has run: seeds, and the variables in env."""
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(os.urandom(32), 32.0)
    if "tempfile" in sys.modules:
        sys.modules["tempfile"]._name_sequence = None
    if "uuid" in sys.modules:
        uuid = sys.modules["uuid"]  # libuuid keeps what it once chose, so from here on uuid1 is Python's own
        uuid._generate_time_safe = uuid._last_timestamp = None
        uuid._node = int.from_bytes(os.urandom(6), "big") | 1 << 40
    if not fresh:
        return b"ok", 0, ""
    for name in SEEDED:
        seed = getattr(sys.modules.get(name), "seed", None)
        if seed is not None:
            seed()
    if "multiprocessing.process" in sys.modules:
        process = sys.modules["multiprocessing.process"].current_process()
        process.authkey = os.urandom(32)
    os.environ.update(env)
    engine.renew()
    return b"ok", 0, ""


def serve():
    figures = Figures()
    sys.meta_path.insert(0, Hooks(figures))
    try:
        if os.environ.get("LATHE_KERNEL") == "plain":
            raise ImportError
        engine = ipython(figures)
    except ImportError:
        engine = Plain(figures)
    sys.path.insert(0, "")  # see kernelStub
    sys.addaudithook(wire.audit)
    wire.send(HELLO, engine.flavour)
    pid = os.getpid()
    while True:
        kind, payload = wire.receive()
        try:
            if kind == START:
                code, where, functions, fresh, *env = unlist(payload)
                if fresh == "1":
                    pipes.renew()
                done = cell(engine, figures, code, where, functions, dict(zip(env[::2], env[1::2])))
            elif kind == WARM:
                done = warm(engine, unlist(payload))
            elif kind == RENEW:
                done = renew(engine, *renewal(payload))
            else:
                os._exit(0)
        except BaseException as error:
            done = b"error", 1, describe(error)
        try:
            flush()
            sound = pipes.mend()
        finally:
            if os.getpid() != pid:  # a fork that came back out of the cell
                os._exit(done[1])
        if not sound:
            lose("the interpreter's output was closed for good")
        status, code, text = done
        spawned, wire.spawned = wire.spawned, False
        wire.send(RESULT, b"%s\0%d%s\0%s" % (status, code, b"+" * spawned, text[:4096].encode("utf-8", "backslashreplace")))


outer = {}  # what the variables of the last call were before it
reserve = Reserve()
wire = Wire()
tools = Tools()
os.register_at_fork(after_in_child=wire.forked)
signal.signal(signal.SIGINT, wire.interrupted)
OUT = sys.stdout = sys.__stdout__ = Stream(1)
ERR = sys.stderr = sys.__stderr__ = Stream(2)
pipes = Pipes()
sys.argv = [""]
builtins.input = no_input
try:
    import faulthandler
    faulthandler.enable(all_threads=False)
except (ImportError, OSError, ValueError):
    pass
serve()
