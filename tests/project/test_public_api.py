"""Test that the public API matches the committed snapshots."""

from __future__ import annotations

import ast
import difflib
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import treekit
from tests.snapshots import FOLDER, SNAPSHOTS

# ---------------------------------------------------------------- public api

SHOWN = 60
"""Lines of a difference that a failure prints at most."""


@pytest.mark.parametrize("name", sorted(SNAPSHOTS.keys() - {"artifacts.txt"}))
def test_public_api_equals_its_snapshot(name: str):
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


# ---------------------------------------------------------------- front door
# ``import treekit`` is cheap, and every public name is there when asked for.

HEAVY = {"numpy", "numba", "onnx", "onnxruntime", "sklearn", "pandas", "narwhals", "click"}


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_neither_treekit_nor_the_records_of_a_plugin_import_heavy_libraries():
    heavy = f"print({HEAVY!r} & set(sys.modules));"
    records = "from treekit import Criterion, CriterionFunctions, Setting, hookimpl;"
    assert run(f"import sys, treekit; {heavy} {records} {heavy}") == "set()\nset()"


def test_the_estimators_import_numba_at_the_first_fit():
    code = "import sys; from treekit import RandomForestClassifier; print('numba' in sys.modules)"
    assert run(code) == "False"


@pytest.mark.parametrize("name", dir(treekit))
def test_every_public_name_is_an_attribute(name: str):
    assert getattr(treekit, name) is not None


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(treekit.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == set(dir(treekit))


def test_star_import_provides_every_public_name():
    names: dict[str, object] = {}
    exec("from treekit import *", names)
    assert all(names[name] is getattr(treekit, name) for name in treekit.__all__)


def test_every_error_can_be_caught_by_its_public_name():
    from treekit import errors

    assert set(errors.__all__) <= set(treekit.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No treekit attribute trian"):
        treekit.trian  # noqa: B018


@pytest.mark.system
@pytest.mark.parametrize("first", ["treekit", "treekit.export, treekit.verify", "treekit.cli"])
def test_submodule_named_like_its_function_is_callable_in_any_import_order(first: str):
    calls = "print(*map(callable, (treekit.export, treekit.verify)))"
    assert run(f"import {first}; import treekit; {calls}") == "True True"


def test_imported_submodules_named_like_functions_stay_callable():
    for room in ("export", "verify"):
        assert callable(importlib.import_module(f"treekit.{room}"))
        assert callable(getattr(treekit, room))


def test_callable_submodule_passes_its_arguments_to_the_function():
    with pytest.raises(TypeError, match=r"export\(\) missing"):
        treekit.export()
    from treekit.export import export

    assert treekit.export.export is export


def test_version_equals_the_distribution():
    assert treekit.__version__ == metadata.version("treekit-ml")


def test_removed_bootstrap_names_its_replacement() -> None:
    with pytest.raises(AttributeError, match=r"use scipy\.stats\.bootstrap"):
        treekit.bootstrap  # noqa: B018


def test_moved_name_names_its_plugin() -> None:
    with pytest.raises(
        AttributeError, match="install treekit-plot', then use 'from treekit_plot import"
    ):
        treekit.plot  # noqa: B018
    with pytest.raises(AttributeError, match="from treekit_rule_learning import sirus"):
        treekit.sirus  # noqa: B018
