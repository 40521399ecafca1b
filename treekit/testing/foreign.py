"""What no importer may take or trip over: foreign things, hostile paths, damaged files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["THINGS", "damaged", "foreign_paths", "paths_to_nothing"]


class _Contrary:
    """An object that answers no question."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError(f"asked for {name}")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    def __bool__(self) -> bool:
        raise RuntimeError("taken for a truth value")

    __hash__ = object.__hash__


THINGS: tuple[Any, ...] = (
    *(None, 0, -1.5, True, "", "model", b"model", (), [], {}, {"tree": []}, object(), object),
    *(print, sys, np.zeros(3), np.zeros((2, 2)), SimpleNamespace(tree_=None), _Contrary()),
)
"""Objects that are no models of anybody's."""


def foreign_paths(folder: Path) -> Iterator[Path]:
    """Paths of files of an unheard-of kind, made in `folder`, and of what is no file."""
    for name in ("model.unheard-of", "model", "\u202e.x", "a\nb", "'; ls", "%s{}"):
        (folder / name).write_bytes(b"\x00\x01 no model \xff" * 3)
        yield folder / name
    yield folder
    yield Path(os.devnull)
    yield from paths_to_nothing(folder, ".unheard-of")


def paths_to_nothing(folder: Path, suffix: str) -> Iterator[Path]:
    """Paths of this ending to no file, among them some that no file can have."""
    for name in ("absent", "nul\0", "half \udc80", "long" * 1000, "../absent"):
        yield folder / f"{name}{suffix}"


def damaged(content: bytes, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """A file's content with all sorts of damage, each with what was done in words."""
    rng = np.random.default_rng(seed)
    size = len(content)
    yield "nothing left of it", b""
    for share in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
        yield f"cut after {int(size * share)} bytes", content[: int(size * share)]
    yield "its last byte gone", content[:-1]
    yield "its first byte gone", content[1:]
    yield "another file's content", b"\x00\x01 no model \xff" * 20
    yield "twice, one behind the other", content + content
    yield "bytes that are no text in front", b"\xff\xfe\x00" + content
    lines = content.splitlines(keepends=True)
    for at in rng.integers(len(lines), size=min(len(lines), 12)) if len(lines) > 1 else ():
        yield f"without line {at + 1}", b"".join(lines[:at] + lines[at + 1 :])
    for number in range(40 if size else 0):
        at, other = int(rng.integers(size)), int(rng.integers(256))
        if number % 2:  # a digit, letter or sign for another is harder to notice
            other = ord("0129-.eE<>{}[]:,\"'nNaA x"[other % 24])
        yield f"byte {at} is {other}", content[:at] + bytes([other]) + content[at + 1 :]
