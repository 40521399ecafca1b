"""Run programs in processes that cannot import treekit."""

import subprocess
import sys
from pathlib import Path

__all__ = ["EXAMPLES", "answers", "run_bare", "run_without_treekit"]

EXAMPLES = Path(__file__).parent
"""This folder; an example has no ``__file__`` in the gallery of the documentation."""

BLOCKED = """
import runpy, sys
sys.modules["treekit"] = None  # makes every later import of treekit fail
try:
    import treekit
    sys.exit("treekit could be imported")
except ImportError:
    pass
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_without_treekit(program, *arguments):
    """Run a Python program that cannot import treekit; return its output."""
    return _run([sys.executable, "-c", BLOCKED, program, *arguments])


def run_bare(program, *arguments):
    """Run a Python program without installed packages (-I and -S); return its output."""
    return _run([sys.executable, "-I", "-S", program, *arguments])


def _run(command):
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, check=True, encoding="utf-8"
    )
    return done.stdout


def answers(text):
    """Parse labels and numbers from lines ``label TAB number TAB ...``, numbers in hexadecimal."""
    rows = [line.split("\t") for line in text.splitlines()]
    return [row[0] for row in rows], [[float.fromhex(cell) for cell in row[1:]] for row in rows]
