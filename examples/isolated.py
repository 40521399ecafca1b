"""Programs run where treekit cannot be imported, and what they print."""

import subprocess
import sys

__all__ = ["answers", "run_bare", "run_without_treekit"]

BLOCKED = """
import runpy, sys
sys.modules["treekit"] = None  # from here on importing it fails
try:
    import treekit
    sys.exit("treekit could be imported")
except ImportError:
    pass
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_without_treekit(program, *arguments):
    """What a Python program prints in a process in which importing treekit fails."""
    return _run([sys.executable, "-c", BLOCKED, program, *arguments])


def run_bare(program, *arguments):
    """What a Python program prints without any installed package: -I and -S leave all out."""
    return _run([sys.executable, "-I", "-S", program, *arguments])


def _run(command):
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, check=True, encoding="utf-8"
    )
    return done.stdout


def answers(text):
    """Labels and numbers of lines ``label TAB number TAB ...``, numbers in hexadecimal."""
    rows = [line.split("\t") for line in text.splitlines()]
    return [row[0] for row in rows], [[float.fromhex(cell) for cell in row[1:]] for row in rows]
