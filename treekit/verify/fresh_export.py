"""Comparison of files with a new export of their model, byte for byte.

A file depends only on the model and the settings that it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from treekit.errors import ExportError, SettingError
from treekit.export.lowering import FORM_REASON
from treekit.export.readable import UNREADABLE

_FORM_LINE = re.compile(r"^(?: \* )?Form: (\w+); (.*)\.$", re.MULTILINE)


def find_source_settings(text: str) -> dict[str, str] | None:
    """Return the setting ``form`` that a source names, None if it names none."""
    line = _FORM_LINE.search(text)
    if line is None:
        return None
    if line[1] == "readable" or UNREADABLE in line[2]:
        return {"form": "auto"}
    return {"form": line[1] if line[2] == FORM_REASON else "full"}


def equals_export(path: Path, write: Callable[[], Mapping[str, bytes]]) -> bool:
    """Return whether files have the bytes that this version writes for the model."""
    try:
        return all(
            content in (found, normalize_line_ends(found))
            for name, content in write().items()
            for found in (path.with_name(name).read_bytes(),)
        )
    except (ExportError, SettingError, OSError):
        return False  # this model cannot have been exported with these settings


def normalize_line_ends(content: bytes) -> bytes:
    """Convert the line ends that tools write on Windows to those of treekit."""
    return content.replace(b"\r\n", b"\n")
