"""C source of every extreme model, in every form and arithmetic, in one program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.extremes import EXTREMES, extreme_rows, refused, wanted
from tests.reference.artifacts import STRICT, Compiled
from treekit.errors import ExportError
from treekit.export.c import export_c
from treekit.model.ensemble import Model
from treekit.model.predict import leaf_indices, sums

WAYS = {
    "table": {"form": "table"},
    "if_else": {"form": "if_else"},
    "float": {"form": "table", "input": "float"},
    "float_if_else": {"form": "if_else", "input": "float"},
    "integer": {"form": "table", "arithmetic": "integer"},
    "integer_if_else": {"form": "if_else", "arithmetic": "integer"},
    "hybrid": {"form": "hybrid"},
    "integer_hybrid": {"form": "hybrid", "arithmetic": "integer"},
}
MOST_NODES = 400
"""Larger models are written as nested tests in one way only: compilers take their time."""


def refusal(model: Model, way: str) -> str | None:
    """A word of the reason for which a model has no such source."""
    if model.missing == "fractional" and way.endswith(("if_else", "hybrid")):
        return "rows divide"
    if model.schema.dtype == "float64" and "float" in way:
        return "would round"
    sums_of_columns = any(
        (np.diff(tree.term_start) > 1).any() or (tree.term_weight != 1.0).any()
        for tree in model.trees
    )
    return "oblique" if sums_of_columns and "integer" in way else None


def sources() -> Iterator[tuple[str, str, str]]:
    """Prefix, model and way of every source."""
    for number, (name, make) in enumerate(EXTREMES.items()):
        for way in WAYS:
            large = make().n_nodes > MOST_NODES and way.endswith(("_if_else", "hybrid"))
            if refusal(make(), way) is None and not large:
                yield f"m{number}_{way}", name, way


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Compiled]]:
    """All of them in one library: starting compilers is what takes time."""
    folder = tmp_path_factory.mktemp("extremes")
    named = list(sources())
    for prefix, name, way in named:
        for file, content in export_c(EXTREMES[name](), prefix, **WAYS[way]).items():
            (folder / file).write_bytes(content)
    (folder / "all.c").write_text("".join(f'#include "{prefix}.c"\n' for prefix, *_ in named))
    command = ["gcc", *STRICT, "-Wshadow", "-O0", "-shared", "-fPIC", "all.c", "-o", "all.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]

    def of_model(asked: str) -> dict[str, Compiled]:
        return {
            way: Compiled(folder / "all.so", prefix, EXTREMES[name](), cells_of(folder, prefix))
            for prefix, name, way in named
            if name == asked
        }

    return of_model


def cells_of(folder: Path, prefix: str) -> str:
    header = (folder / f"{prefix}.h").read_text()
    return header.split(f'{prefix.upper()}_INPUT "')[1].split('"')[0]


@pytest.mark.parametrize("name", EXTREMES)
def test_every_extreme_model_gives_its_bits_in_every_way(name, programs):
    model = EXTREMES[name]()
    rows = extreme_rows(model)
    answers, gone = wanted(model, rows), refused(model, rows)
    total = sums(model, rows[~gone])
    found = programs(name)
    assert "table" in found
    for way, program in found.items():
        labels, out = program.answers(rows)
        assert np.array_equal(labels, answers.label[:, : labels.shape[1]]), way
        if program.number == np.float64:
            bits = out[~gone].view(np.int64) == answers.number[~gone].view(np.int64)
            assert bits.all(), way
        else:
            assert np.array_equal(out[~gone], total), way
        assert (out[gone] == -77).all(), way


@pytest.mark.parametrize("name", [name for name, make in EXTREMES.items()])
def test_every_extreme_model_tells_its_leaves(name, programs):
    model = EXTREMES[name]()
    rows = extreme_rows(model, most=20)
    gone = refused(model, rows)
    nodes = leaf_indices(model, rows[~gone])
    for way, program in programs(name).items():
        if model.missing == "fractional":
            with pytest.raises(AttributeError):
                program.leaves(rows)
        else:
            told = program.leaves(rows)
            assert np.array_equal(told[~gone], nodes), way
            assert (told[gone] == -1).all(), way


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", EXTREMES)
def test_what_a_source_cannot_hold_is_refused_by_its_reason(name, way):
    reason = refusal(EXTREMES[name](), way)
    if reason:
        with pytest.raises(ExportError, match=reason):
            export_c(EXTREMES[name](), "m", **WAYS[way])
