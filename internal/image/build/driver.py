"""Runs pip for an interpreter that is not its own: argv is a wheel of pip or "", the markers' environment as JSON, and pip's arguments."""
import json
import sys

wheel, markers = sys.argv[1], json.loads(sys.argv[2])
if wheel:
    sys.path.insert(0, wheel)
from pip._internal.cli.main import main
from pip._vendor.packaging import markers as vendored

if not callable(getattr(vendored, "default_environment", None)):
    sys.exit("this pip keeps the environment of markers elsewhere: install pip 20.3 to 26")
vendored.default_environment = lambda: dict(markers)
sys.exit(main(sys.argv[3:]))
