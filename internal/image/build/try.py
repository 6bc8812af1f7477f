import importlib, importlib.metadata, platform
print("Python", platform.python_version())
for _name in NAMES:
    _dist = importlib.metadata.distribution(_name)
    _tops = (_dist.read_text("top_level.txt") or "").split() or sorted(
        {f.parts[0].removesuffix(".py") for f in _dist.files or () if f.suffix == ".py" and (len(f.parts) == 1 or f.parts[1] == "__init__.py")})
    _bad = []
    for _top in _tops[:20]:
        if _top.isidentifier():
            try:
                importlib.import_module(_top)
            except BaseException as _error:
                _bad.append(f"{_top} cannot be imported: {type(_error).__name__}: {_error}")
    print(_name, _dist.version, "; ".join(_bad)[:1000])
