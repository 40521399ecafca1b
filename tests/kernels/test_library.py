"""The library of kernels: the models of numba, and numba where the library does not apply."""

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

from treekit.kernel_library.variants import find_place, iterate_kernels, parse_types
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


def test_type_descriptions_match_the_notation_of_variants() -> None:
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


@pytest.mark.kernels
def test_kernels_look_up_variants_and_report_missing_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "get_library", lambda: None)
    monkeypatch.setattr(library, "_missing", set())
    listed = dict(iterate_kernels())
    for name, arguments in listed.items():
        kernel = find_place(name)
        monkeypatch.setattr(kernel, "_variants", {})
        assert kernel.find_call(arguments) is None
    assert {one.partition("(")[0] for one in library.list_missing()} == listed.keys()


def test_closures_are_described_by_their_captured_values() -> None:
    from treekit.components.criteria import make_entropy, make_gini

    bits, nats = make_entropy(2.0), make_entropy(np.e)
    assert describe_functions(bits.score) == describe_functions(make_entropy(2.0).score)
    assert describe_functions(bits.score) != describe_functions(nats.score)
    assert describe_functions(make_gini().score) == "components.criteria.make_gini.<locals>.score"
    assert describe_functions(lambda: 0) is None
    scope: dict[str, Any] = {"__name__": None}
    exec("def made():\n    return 0", scope)
    assert describe_functions(scope["made"]) is None


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


@pytest.mark.system
@needs_library
@pytest.mark.parametrize("kind", ["usual", pytest.param("all", marks=needs_all)])
def test_library_trains_the_models_of_numba_without_importing_it(kind: str) -> None:
    own, compiled = run_flows(kind), run_flows(kind, TREEKIT_KERNELS="none")
    assert not own.pop("numba")
    assert compiled.pop("numba")
    assert own == compiled


@pytest.mark.system
@needs_library
@pytest.mark.parametrize("kind", ["use", "serve"])
def test_the_demo_and_the_server_do_not_import_numba(kind: str) -> None:
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


@pytest.mark.system
@needs_library
def test_missing_variant_is_compiled_by_numba() -> None:
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


def test_a_library_of_a_newer_processor_is_not_used(tmp_path: Path) -> None:
    flags = "fpu sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
    assert library.is_supported("x86-64-v3", f"processor : 0\nflags\t\t: {flags}\n")
    for needed in ("avx2", "fma", "abm"):
        older = " ".join(flag for flag in flags.split() if flag != needed)
        assert not library.is_supported("x86-64-v3", f"processor : 0\nflags\t\t: {older}\n")
    assert library.is_supported("generic", "")


_OWN = """
import hashlib, json, os
import numpy as np
import treekit
from tests.kernels.library_flows import digest_model, make_example_table

def score(parent, children):
    apart = 0.0
    for b in range(children.shape[0]):
        apart += abs(children[b, 0] * parent[1] - children[b, 1] * parent[0])
    return apart / (parent[0] + parent[1]) ** 2

def wrong(parent, children):
    if parent[0] > 0.0:
        raise ValueError("no such table")
    return 0.0

def train(score):
    made = treekit.CriterionFunctions(score=score)
    own = treekit.Criterion("own", "classification", lambda: made)
    table = {name: make_example_table()[name] for name in ("x", "y", "dear")}
    return treekit.train(table, "dear", criterion=own, seed=0)

try:
    train(wrong)
except treekit.TreekitError as error:
    message = str(error)
print(json.dumps({"model": digest_model(train(score)), "message": message}))
"""


def copy_library(folder: Path, **facts: Any) -> Path:
    """Copy the library of this installation, with other facts in its manifest."""
    shutil.copytree(library.find_folder(), folder)
    manifest = json.loads((folder / library.MANIFEST).read_text(encoding="utf-8")) | facts
    (folder / library.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.mark.system
@needs_library
def test_custom_criterion_trains_with_another_numba_than_at_build(
    tmp_path: Path,
) -> None:
    other = copy_library(tmp_path / "other", numba="0.1")
    found = [
        run("-c", _OWN),
        run("-c", _OWN, TREEKIT_KERNEL_FOLDER=str(other)),
        run("-c", _OWN, TREEKIT_KERNELS="none"),
    ]
    assert len({one["model"] for one in found}) == 1
    assert "no such table" in found[0]["message"]
    assert all("own" in one["message"] for one in found)


_FORK = """
import json, os
from tests.kernels.library_flows import USUAL, digest_model

train = USUAL["demo tree"]
first = digest_model(train())
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, digest_model(train()).encode())
    os._exit(0)
os.close(writing)
with os.fdopen(reading) as file:
    print(json.dumps({"equal": file.read() == first}))
"""


@pytest.mark.system
@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_uses_the_library() -> None:
    assert run("-W", "ignore::DeprecationWarning", "-c", _FORK) == {"equal": True}


@pytest.mark.system
def test_without_a_linker_the_object_file_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    command = [sys.executable, "-m", "treekit.kernel_library.build", "--usual", "--no-linker"]
    subprocess.run([*command, "--into", str(folder)], cwd=ROOT, check=True, capture_output=True)
    assert (folder / library.OBJECT).exists()
    assert not (folder / library.SHARED).exists()
    own = run_flows("usual", TREEKIT_KERNEL_FOLDER=str(folder))
    compiled = run_flows("usual", TREEKIT_KERNELS="none")
    del own["numba"], compiled["numba"]  # llvmlite loads the object
    assert own == compiled


@pytest.mark.system
@needs_library
@pytest.mark.parametrize("edited", ["kernels/pruning.py", "distributed/kernels/levels.py"])
def test_edited_kernel_sources_disable_the_library(edited: str, tmp_path: Path) -> None:
    for name in ("treekit", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "treekit" / edited).open("a", encoding="utf-8") as file:
        file.write("\n# edited\n")
    found = run("-c", _WHY, place=tmp_path)
    assert "sources of kernels have changed" in found["why"]
