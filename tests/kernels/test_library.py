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

_FLOWS = """
import hashlib, json, sys
import numpy as np
import treekit
from treekit.data import DEMO_TARGET, demo_table
from treekit.warm_up import train_example

def digest(model):
    tree = hashlib.sha256()
    for one in model.trees:
        for part in (one.kind, one.feature, one.threshold, one.value, one.first_child):
            tree.update(np.ascontiguousarray(part).tobytes())
    return tree.hexdigest()

rng = np.random.default_rng(0)
x = rng.normal(size=(2, 400))
seven = {"x": x[0], "y": x[1], "label": np.arange(400) % 7}
flows = {
    "numeric": lambda: train_example("dear", levels=False),
    "few rows": lambda: train_example("dear", rows=120),
    "demo forest": lambda: treekit.train(
        demo_table(), DEMO_TARGET, ensemble="forest", trees=5, seed=0
    ),
    "regression": lambda: train_example("price", pruner="cost_complexity"),
    "absolute error": lambda: train_example("price", criterion="absolute_error"),
    "categories": lambda: train_example("kind"),
    "entropy": lambda: train_example("kind", criterion="entropy"),
    "seven classes": lambda: treekit.train(seven, "label", max_depth=4, seed=0),
    "surrogates": lambda: train_example("dear", missing="surrogate"),
    "fractional": lambda: train_example("dear", missing="fractional"),
    "c45": lambda: train_example("dear", algorithm="c45"),
    "histogram": lambda: train_example("dear", splitter="histogram"),
    "extra trees": lambda: train_example("kind", algorithm="extra_trees", trees=3),
    "best first": lambda: train_example("dear", max_leaves=5),
}
found = {name: digest(flow()) for name, flow in flows.items()}
found["numba"] = "numba" in sys.modules or "llvmlite" in sys.modules
print(json.dumps(found))
"""


def run_flows(code: str, **settings: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=os.environ | settings, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_library
def test_models_are_those_of_numba_and_numba_is_not_imported() -> None:
    own, compiled = run_flows(_FLOWS), run_flows(_FLOWS, TREEKIT_KERNELS="none")
    assert not own.pop("numba")
    assert compiled.pop("numba")
    assert own == compiled


_USE = """
import json, sys
from treekit.warm_up import _use, train_example

for target in ("dear", "price"):
    _use(train_example(target), ("c", "python", "rules"))
print(json.dumps({"numba": "numba" in sys.modules}))
"""


@needs_library
def test_predictions_rules_exports_and_verification_do_not_import_numba() -> None:
    assert run_flows(_USE) == {"numba": False}


_MISSING = """
import json, sys
from treekit.kernels import library

made = library.get_library()
made.manifest["kernels"].pop("thresholds.place_readable_thresholds")
from treekit.warm_up import train_example

model = train_example("dear", thresholds="readable")
print(json.dumps({"numba": "numba" in sys.modules, "nodes": model.n_nodes}))
"""


@needs_library
def test_a_variant_that_is_missing_is_compiled() -> None:
    found = run_flows(_MISSING)
    assert found["numba"]
    assert found["nodes"] > 1


def test_a_library_of_other_sources_is_not_used(tmp_path: Path) -> None:
    manifest = {"sources": digest_sources()[:-1] + "-", "platform": [sys.platform, ""]}
    (tmp_path / library.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    code = "from treekit.kernels.library import explain_absence as e; import json\n"
    code += "print(json.dumps({'why': e()}))"
    found = run_flows(code, TREEKIT_KERNEL_FOLDER=str(tmp_path))
    assert "sources of kernels have changed" in found["why"]


@needs_library
def test_an_edited_kernel_is_noticed(tmp_path: Path) -> None:
    root = Path(library.__file__).parents[2]
    for name in ("treekit", "templates"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "treekit/kernels/pruning.py").open("a", encoding="utf-8") as file:
        file.write("\n# edited\n")
    code = "from treekit.kernels.library import explain_absence as e; import json\n"
    code += "print(json.dumps({'why': e()}))"
    found = run_flows(code, PYTHONPATH=str(tmp_path))
    assert "sources of kernels have changed" in found["why"]
