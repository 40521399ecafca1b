"""The tutorial runs as it stands: every block of sh and python, in order, and what they print.

In a fresh environment that borrows the libraries of the one that runs the tests, without a
network: what pip would download is there already.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

import treekit

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
TEXT = (PLUGINS / "TUTORIAL.md").read_text(encoding="utf-8")


@dataclass
class Step:
    """A block of the tutorial: a file to write, or what to run and what it prints."""

    kind: str
    code: str
    line: int
    file: str = ""
    output: str | None = None


def steps(text: str) -> Iterator[Step]:
    """The blocks in order; an output belongs to the block before it."""
    blocks = re.compile(r"(?:<!-- file: (\S+) -->\n+)?^```(\w+)\n(.*?)^```$", re.M | re.S)
    last = None
    for found in blocks.finditer(text):
        file, kind, code = found.groups()
        line = text.count("\n", 0, found.start(2)) + 1
        if kind == "text":
            assert last is not None, f"line {line}: an output of nothing"
            last.output = code
            continue
        if last is not None:
            yield last
        last = Step(kind, code, line, file or "")
    if last is not None:
        yield last


def agree(wanted: str, got: str) -> bool:
    """Whether an output is as shown; ``...`` stands for anything, as a line for any lines."""
    pattern = ""
    for line in wanted.strip().splitlines():
        parts = map(re.escape, line.split("..."))
        pattern += r"(?:.*\n)*?" if line == "..." else ".*?".join(parts) + r"\n"
    lines = "".join(f"{line.rstrip()}\n" for line in got.strip().splitlines())
    return re.fullmatch(pattern, lines) is not None


def _borrow(library: Path) -> None:
    """Let an environment use what is installed here, but the plugins of treekit."""
    own = ("treekit", "_editable_impl_treekit")
    told = f"treekit_ml-{treekit.__version__}.dist-info"
    for folder in dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")):
        for path in Path(folder).iterdir():
            place = library / path.name
            if (path.name == told or not path.name.startswith(own)) and not place.exists():
                place.symlink_to(path)
    root = Path(treekit.__file__).parents[1]
    (library / "borrowed.pth").write_text(f"{root}\n", encoding="utf-8")


MARK = "\n==== the next block ====\n"
EACH = f"""
import pathlib, runpy, sys
here = pathlib.Path(__file__).parent
for i in range(int(sys.argv[1])):
    print(end={MARK!r} * (i > 0), flush=True)
    runpy.run_path(str(here / f"block{{i}}.py"), run_name="__main__")
"""


class Shell:
    """A person at a terminal: commands in a folder, from block to block."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder / "work", folder / "place"
        self.folder.mkdir()
        self.home = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.home], check=True)
        self.scripts = self.home / ("Scripts" if os.name == "nt" else "bin")
        python = self.scripts / "python"
        where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        library = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
        _borrow(Path(library))
        self._script("treekit", f'exec "{python}" -m treekit "$@"')
        self._script("pytest", f'exec "{python}" -m pytest "$@"')
        self._script("pip", f'exec "{sys.executable}" -m pip --python "{python}" "$@"')

    def _script(self, name: str, line: str) -> None:
        path = self.scripts / name
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, block: list[Step]) -> list[str]:
        """What each of some blocks of one kind prints, warnings among it."""
        step = block[0]
        if step.kind == "python":
            for i, one in enumerate(block):
                (self.home / f"block{i}.py").write_text(one.code, encoding="utf-8")
            (self.home / "blocks.py").write_text(EACH, encoding="utf-8")
            command = f'"{self.scripts / "python"}" "{self.home / "blocks.py"}" {len(block)}'
        else:
            command = step.code
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'{command}\npwd > "{self.place}"'],
            cwd=self.folder,
            env=os.environ
            | {
                "PATH": f"{self.scripts}{os.pathsep}{os.environ['PATH']}",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "PIP_NO_BUILD_ISOLATION": "0",  # means: without isolation
                "PIP_NO_DEPS": "1",
                "PIP_NO_INDEX": "1",
                "PIP_QUIET": "1",
                "PYTHONPATH": "",
                "COLUMNS": "100",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"TUTORIAL.md, line {step.line}:\n{done.stdout}"
        self.folder = Path(self.place.read_text(encoding="utf-8").rstrip("\n"))
        return done.stdout.split(MARK)


@pytest.mark.system
def test_the_tutorial_runs_as_it_stands(tmp_path: Path):
    shell = Shell(tmp_path)
    for (kind, _), group in groupby(steps(TEXT), key=session):
        block = list(group)
        if kind == "file":
            (shell.folder / block[0].file).write_text(block[0].code, encoding="utf-8")
            continue
        for step, told in zip(block, shell.run(block), strict=True):
            if step.output is not None:
                assert agree(step.output, told), f"TUTORIAL.md, line {step.line} prints:\n{told}"


def session(step: Step) -> tuple[str, int]:
    """What blocks run together: those of Python one after the other, which costs one start."""
    return (
        ("file", step.line) if step.file else (step.kind, 0 if step.kind == "python" else step.line)
    )


def test_every_block_is_run_or_an_output():
    assert set(re.findall(r"^```(\w*)$", TEXT, re.MULTILINE)) == {"", "python", "sh", "text"}
    kinds = [step.kind for step in steps(TEXT)]
    assert set(kinds) == {"python", "sh"}
    assert TEXT.count("\n```sh\n") + TEXT.count("\n```python\n") == len(kinds)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n", "a \n", True),
        ("a ... c", "a b c", True),
        ("a ... c", "a b\nc c", False),
        ("a", "ab", False),
        ("...", "a\nb", True),
        ("...\nb", "b", True),
        ("...\nb", "a b", False),
    ],
)
def test_dots_stand_for_anything(shown: str, printed: str, same: bool):
    assert agree(shown, printed) is same
