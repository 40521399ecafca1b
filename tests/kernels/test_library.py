"""The library of kernels: the same models as by numba, and numba where the library does not fit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treekit.compiling.variants import iterate_kernels, parse_types
from treekit.kernels import library
from treekit.kernels.grow_tree import NODE_DTYPE
from treekit.kernels.library import describe_functions, describe_types, digest_sources
from treekit.kernels.records import Rows

needs_library = pytest.mark.skipif(
    library.explain_absence() is not None, reason=str(library.explain_absence())
)

needs_all = pytest.mark.skipif(
    library.get_library() is None or library.get_library().manifest["variants"] != "all",  # type: ignore[union-attr]
    reason="only the usual kernels are in the library",
)

# ---------------------------------------------------------------- names


def test_types_are_described_as_variants_write_them() -> None:
    for form in ("u4*", "f8**", "b1*", "u8", "i8", "f8", "b", "f8***"):
        assert describe_types(parse_types(form)[0]) == form
    rows = Rows(np.zeros(1, np.uint32), np.zeros(1, np.uint32), np.zeros((1, 2)))
    assert describe_types(rows) == describe_types(parse_types("Rows")[0]) == "Rows(u4*,u4*,f8**)"
    assert describe_types(np.zeros(4)[::2]) == describe_types(parse_types("f8*A")[0]) == "f8*A"
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert describe_types((frozen, None, np.zeros((3, 2)).T)) == "(f8*r,None,f8**F)"
    assert describe_types(np.zeros(1, NODE_DTYPE)) == f"V{NODE_DTYPE.itemsize}*"


def test_every_variant_is_listed_once() -> None:
    listed = [(name, describe_types(arguments)) for name, arguments in iterate_kernels()]
    assert len(set(listed)) == len(listed)


def test_closures_are_described_by_their_cells() -> None:
    from treekit.components.criteria import make_entropy, make_gini

    bits, nats = make_entropy(2.0), make_entropy(np.e)
    assert describe_functions(bits.score) == describe_functions(make_entropy(2.0).score)
    assert describe_functions(bits.score) != describe_functions(nats.score)
    assert describe_functions(make_gini().score) == "components.criteria.make_gini.<locals>.score"
    assert describe_functions(lambda: 0) is None


# ---------------------------------------------------------------- calls

ROOT = Path(library.__file__).parents[2]


def run(*command: str, place: Path = ROOT, **settings: str) -> dict[str, Any]:
    """Run Python in a process of its own, and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(place)} | settings
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=place, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_flows(kind: str, **settings: str) -> dict[str, Any]:
    return run("-m", "tests.kernels.library_flows", kind, **settings)


@needs_library
@pytest.mark.parametrize("kind", ["usual", pytest.param("all", marks=needs_all)])
def test_models_are_those_of_numba_and_numba_is_not_imported(kind: str) -> None:
    own, compiled = run_flows(kind), run_flows(kind, TREEKIT_KERNELS="none")
    assert not own.pop("numba")
    assert compiled.pop("numba")
    assert own == compiled


@needs_library
@pytest.mark.parametrize("kind", ["use", "serve"])
def test_what_the_demo_and_the_server_do_does_not_import_numba(kind: str) -> None:
    found = run_flows(kind)
    assert not found["numba"]
    assert found["done"] >= 2


_MISSING = """
import json, sys
from treekit.kernels import library

made = library.get_library()
made.manifest["kernels"].pop("thresholds.place_readable_thresholds")
from tests.kernels.library_flows import train_example

model = train_example("dear", thresholds="readable")
print(json.dumps({"numba": "numba" in sys.modules, "nodes": model.n_nodes}))
"""


@needs_library
def test_a_variant_that_is_missing_is_compiled() -> None:
    found = run("-c", _MISSING)
    assert found["numba"]
    assert found["nodes"] > 1


_WHY = """
import json
from treekit.kernels.library import explain_absence
print(json.dumps({"why": explain_absence()}))
"""


def test_a_library_of_other_sources_is_not_used(tmp_path: Path) -> None:
    manifest = {"sources": digest_sources()[:-1] + "-", "platform": [sys.platform, ""]}
    (tmp_path / library.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    found = run("-c", _WHY, TREEKIT_KERNEL_FOLDER=str(tmp_path))
    assert "sources of kernels have changed" in found["why"]


@needs_library
def test_an_edited_kernel_is_noticed(tmp_path: Path) -> None:
    for name in ("treekit", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "treekit/kernels/pruning.py").open("a", encoding="utf-8") as file:
        file.write("\n# edited\n")
    found = run("-c", _WHY, place=tmp_path)
    assert "sources of kernels have changed" in found["why"]
