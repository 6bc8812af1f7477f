"""Writes the variables of a kernel to a file and reads them back. It runs inside the kernel, as a module of its own.

What comes back: variables that pickle takes, modules by name, functions and lambdas of cells, open files at their place, the working
directory and the environment. What does not: threads, child processes, classes of cells and their objects, generators, sockets.
"""
import importlib
import io
import json
import marshal
import os
import pickle
import types

names = mounts = None  # the variables of the kernel; pairs of target and source


def outside_in(path):
    for target, source in mounts:
        if path == source or path.startswith(source + "/"):
            return target + path[len(source):]
    return path


def inside_out(path):
    for target, source in mounts:
        if path == target or path.startswith(target + "/"):
            return source + path[len(target):]
    return path


def function(code, name, defaults, kwdefaults, cells):
    made = types.FunctionType(marshal.loads(code), names, name, defaults, tuple(types.CellType(c) for c in cells))
    made.__kwdefaults__ = kwdefaults
    return made


def file(path, mode, position, encoding):
    binary = "b" if "b" in mode else ""
    how = mode.strip("bt+U")
    opened = open(inside_out(path), {"r": "r", "a": "a"}.get(how[:1], "r+") + ("+" if "+" in mode and how[:1] in "ra" else "") + binary,
                  encoding=encoding)
    if how[:1] != "a":
        opened.seek(position)
    return opened


class Pickler(pickle.Pickler):
    def reducer_override(self, o):
        if isinstance(o, types.ModuleType):
            return importlib.import_module, (o.__name__,)
        if isinstance(o, types.FunctionType) and o.__globals__ is names:
            cells = tuple(c.cell_contents for c in o.__closure__ or ())
            return function, (marshal.dumps(o.__code__), o.__name__, o.__defaults__, o.__kwdefaults__, cells)
        if isinstance(o, (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom)) and isinstance(o.name, str):
            if o.closed:
                raise pickle.PicklingError("closed file")
            if o.writable():
                o.flush()
            path = outside_in(os.path.abspath(o.name))
            return file, (path, o.mode, o.tell(), getattr(o, "encoding", None))
        return NotImplemented


def dump(values):
    out = io.BytesIO()
    Pickler(out, protocol=5).dump(values)
    return out.getvalue()


def save(path):
    kept = {}
    for name, value in list(names.items()):
        if name.startswith("_") or name in ("In", "Out", "exit", "quit", "open", "get_ipython"):
            continue
        try:
            dump(value)
        except Exception:
            continue
        kept[name] = value
    with open(path, "wb") as out:
        out.write(dump({"names": kept, "dir": outside_in(os.getcwd()), "env": dict(os.environ)}))


def load(path):
    with open(path, "rb") as source:
        state = pickle.load(source)
    names.update(state["names"])
    os.chdir(inside_out(state["dir"]))
    os.environ.clear()
    os.environ.update(state["env"])
