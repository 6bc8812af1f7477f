"""Runs once inside a new image: compiles what is not compiled, builds matplotlib's font cache, and writes down what is there."""

import compileall
import datetime
import importlib.metadata
import json
import os
import platform
import sys

HOME = "/usr/share/lathe"
DISTRIBUTIONS = ("ipython", "numpy", "pandas", "scipy", "matplotlib", "sympy", "openpyxl", "pillow", "tabulate", "lxml")


def font_cache():
    """The first plot in a sandbox would otherwise search for fonts for a second; the guest copies this folder to where it can be written."""
    os.environ["MPLCONFIGDIR"] = os.path.join(HOME, "matplotlib")
    os.makedirs(os.environ["MPLCONFIGDIR"], exist_ok=True)
    try:
        import matplotlib.font_manager  # noqa: F401  (importing it writes the cache)
    except ImportError:
        pass


def libraries():
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"image: {name} is missing", file=sys.stderr)
    return found


def main():
    sys.dont_write_bytecode = False
    for path in ("/usr/lib/python3", f"/usr/lib/python3.{sys.version_info.minor}"):
        compileall.compile_dir(path, quiet=2, workers=0)
    font_cache()
    image = {
        "name": os.environ["LATHE_NAME"],
        "recipe": os.environ["LATHE_RECIPE"],
        "created": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "source": os.environ["LATHE_SOURCE"],
        "arch": platform.machine(),
        "python": platform.python_version(),
        "libraries": libraries(),
    }
    os.makedirs(HOME, exist_ok=True)
    with open(os.path.join(HOME, "image.json"), "w", encoding="utf-8") as out:
        json.dump(image, out, indent=2)
        out.write("\n")


main()
