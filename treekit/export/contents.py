"""What an exporter returns, judged before any of it is written."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from treekit import registry
from treekit.contracts import Exporter
from treekit.errors import PluginError, TreekitError
from treekit.isolation import FOREIGN, cause, isolated
from treekit.model.model import Model

__all__ = ["contents_of", "is_place"]

_NOTHING = "; nothing was written"


def contents_of(
    exporter: Exporter, model: Model, name: str, settings: Mapping[str, Any]
) -> dict[str, bytes]:
    """File names and contents that an exporter makes of a model.

    Raises
    ------
    ExportError
        If the target cannot express the model.
    PluginError
        If the exporter fails, or returns anything but files of plain names (in the
        folder `name`, if that is where its main file is) that no file system takes
        for one another, the main one first.
    """
    if not registry.is_foreign(exporter):
        return dict(exporter.export(model, name, **settings))
    who = registry.described(exporter)
    # Arrays of a model are read-only; what it says of its training is not.
    lent = replace(model, settings=deepcopy(model.settings), provenance=deepcopy(model.provenance))
    try:
        made = isolated(who, exporter.export, lent, name, **settings)
        if not isinstance(made, Mapping):
            raise TypeError(f"export returned a {type(made).__name__}, not a mapping of files")
        contents = dict(made)
    except TreekitError:
        raise
    except FOREIGN as error:
        raise PluginError(f"{who} failed with {cause(error)}{_NOTHING}") from error
    problem = _problem(contents, name + exporter.suffix)
    if problem:
        raise PluginError(f"{who} {problem}{_NOTHING}")
    return contents


def _problem(contents: Mapping[Any, Any], main: str) -> str:
    """What is wrong with the files, as the end of a sentence, or nothing."""
    seen: dict[str, str] = {}
    folder = main.partition("/")[0] if "/" in main else ""
    for name, content in contents.items():
        if not isinstance(name, str) or not is_place(name, folder):
            where = f"in the folder {folder!r}" if folder else "without a folder"
            return f"wants to write {name!r}; files need plain names, {where}"
        if not isinstance(content, bytes):
            got = type(content).__name__
            remedy = "; encode it: text.encode()" if isinstance(content, str) else ""
            return f"returned a {got} for {name!r}, not bytes{remedy}"
        alike = unicodedata.normalize("NFC", name).casefold()
        if alike in seen:
            return f"returned {seen[alike]!r} and {name!r}, which some file systems take for one"
        seen[alike] = name
    if next(iter(contents), None) != main:
        return f"returned the files {list(contents)!r}, of which the first is to be {main!r}"
    return ""


def is_place(name: str, folder: str = "") -> bool:
    """Whether a file's name is plain; or its path, of plain parts, begins with `folder`."""
    parts = name.split("/")
    return (parts[0] == folder and len(parts) > 1 if folder else len(parts) == 1) and all(
        map(_is_plain, parts)
    )


def _is_plain(name: str) -> bool:
    """Whether a name stays in its folder on every system."""
    return (
        name == Path(name).name
        and not set(name) & set('\\/:*?"<>|')
        and name.isprintable()
        and name not in ("", ".", "..")
    )
