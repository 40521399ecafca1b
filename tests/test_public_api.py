"""Test that the public API matches the committed snapshots."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

import pytest

from tests.snapshots import FOLDER, SNAPSHOTS

SHOWN = 60
"""Lines of a difference that a failure prints at most."""


@pytest.mark.parametrize("name", sorted(SNAPSHOTS.keys() - {"artifacts.txt"}))
def test_the_public_face_equals_its_snapshot(name: str):
    path = FOLDER / name
    committed = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = SNAPSHOTS[name]()
    if found != committed:
        lines = list(_difference(name, committed.splitlines(), found.splitlines()))
        more = [f"... and {len(lines) - SHOWN} lines more"] if len(lines) > SHOWN else []
        remedy = f"If this is wanted: python -m tests.snapshots {name}, and commit the difference."
        said = "\n".join([*lines[:SHOWN], *more, "", remedy])
        pytest.fail(f"{name} does not match the current public API\n{said}", pytrace=False)


def _difference(name: str, committed: list[str], found: list[str]) -> Iterator[str]:
    """A unified difference that names the entry in which each part begins."""
    names = f"committed {name}", "found"
    for line in difflib.unified_diff(committed, found, *names, n=2, lineterm=""):
        place = re.match(r"@@ -(\d+)", line)
        before = committed[: int(place[1]) - 1] if place else []
        entry = next((text for text in reversed(before) if text and text[0] != " "), "")
        yield f"{line} {entry}".rstrip() if place else line


def test_every_snapshot_file_has_a_maker():
    assert {path.name for path in FOLDER.glob("*.txt")} <= SNAPSHOTS.keys()
