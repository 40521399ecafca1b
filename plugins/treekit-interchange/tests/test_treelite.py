"""Treelite checkpoints predict as the model: equal bits of sums, link functions within bounds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treekit_interchange.run_treelite import encode_rows
from treekit_interchange.treelite import (
    bound_vote_error,
    compute_vote_scale,
    export_treelite,
)

import treekit
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import mixed_schema, random_model
from tests.runtimes import need
from treekit.data.schema import Schema
from treekit.errors import ExportError, VerificationError
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.fixed_point import count_tree_units
from treekit.model.model import Model, make_model
from treekit.testing import check_exporter
from treekit.verify import verify
from treekit.verify.answers import differing
from treekit.verify.run_artifact import find_runner

need("treelite")
import treelite  # noqa: E402

REFUSED = {
    "oblique": "splits on sums of columns, or surrogate splits",
    "surrogates": "splits on sums of columns, or surrogate splits",
    "fractional": "fractional instances",
    "fractional_numbers": "fractional instances",
    "fractional_wide": "fractional instances",
    "fractional_unequal": "fractional instances",
    "costs": "misclassification costs",
    "refuses_missing": "rows with missing values",
    "refuses_unseen": "rows with unseen categories",
    "refuses_both": "rows with missing values",
    "wide_numbers": "sums exceed 2**53",
    "wide_numbers64": "sums exceed 2**53",
    "mixed_numbers": "sums exceed 2**53",
    "mixed64_numbers": "sums exceed 2**53",
}
ANSWERED = sorted(EXTREMES.keys() - REFUSED.keys())


def write(model: Model, folder: Path) -> Path:
    path = folder / "model.tl"
    path.write_bytes(export_treelite(model, "model")["model.tl"])
    return path


def read(model: Model) -> Any:
    return treelite.Model.deserialize_bytes(export_treelite(model, "model")["model.tl"])


def predict(model: Model, rows: np.ndarray, **how: Any) -> np.ndarray:
    """Outputs (rows, values) of Treelite, padding of several targets removed."""
    outputs = treelite.gtil.predict(read(model), encode_rows(model.schema, rows), nthread=1, **how)
    sizes = [b - a for a, b in itertools.pairwise(model.schema.blocks)]
    if outputs.shape[1:] == (1, 1):
        return outputs[:, 0]
    return np.concatenate([outputs[:, k, :size] for k, size in enumerate(sizes)], axis=1)


@pytest.mark.parametrize("name", ANSWERED)
def test_extreme_models_and_rows_predict_equal_bits(name: str, tmp_path: Path) -> None:
    model = EXTREMES[name]()
    rows = extreme_rows(model)
    path = write(model, tmp_path)
    for _, answers in find_runner(path).run_rows(path, model.schema, rows):
        n = len(answers.label)
        assert n in (len(rows), 100)
        want = wanted(model, rows[:n])
        assert answers.number.shape == want.number.shape
        assert len(differing(want, answers)) == 0


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_treelite_cannot_express_is_refused(name: str) -> None:
    with pytest.raises(ExportError, match=r"Treelite .*: export to onnx, c or python") as error:
        export_treelite(EXTREMES[name](), "model")
    assert REFUSED[name] in str(error.value)


@pytest.mark.parametrize("name", ["one_leaf", "mixed", "several_labels", "several_numbers"])
def test_treelite_serialises_a_checkpoint_to_the_same_bytes(name: str) -> None:
    content = export_treelite(EXTREMES[name](), "model")["model.tl"]
    again = treelite.Model.deserialize_bytes(content).serialize_bytes()
    assert again[12:] == content[12:]  # after the version


def test_checkpoint_equals_the_tree_of_the_treelite_builder() -> None:
    schema = Schema(mixed_schema().columns[:1], task="regression", dtype="float64")
    split = threshold(0, 2.5, leaf(1.0), leaf(4.0), missing=1)
    content = export_treelite(make_model(schema, [build_tree(split, schema)]), "model")["model.tl"]
    build = treelite.model_builder
    builder = build.ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=build.Metadata(1, "kRegressor", False, 1, [1], (1, 1)),
        tree_annotation=build.TreeAnnotation(1, [0], [0]),
        postprocessor=build.PostProcessorFunc("identity"),
        base_scores=[0.0],
    )
    builder.start_tree()
    builder.start_node(0)
    sides = {"default_left": False, "left_child_key": 1, "right_child_key": 2}
    builder.numerical_test(0, 2.5, opname="<=", **sides)
    builder.end_node()
    for key, value in ((1, 1.0), (2, 4.0)):
        builder.start_node(key)
        builder.leaf(value)
        builder.end_node()
    builder.end_tree()
    made = builder.commit().serialize_bytes()
    end_of_attributes = content.index(b"}]}}") + 4
    assert made.endswith(content[end_of_attributes:])  # the tree, of the same nodes in this order


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_trees", [1, 3, 7, 64, 100, 1000, 99_999])
def test_vote_probabilities_are_within_the_bound(dtype: Any, n_trees: int) -> None:
    total = count_tree_units(n_trees, dtype) * n_trees
    scale, bound = compute_vote_scale(total), bound_vote_error(total)
    assert 0.0 <= bound < 2.0**-28 + n_trees * 2.0**-53
    votes = np.unique(np.geomspace(1, total, 200).astype(np.int64))
    for some in votes.tolist():
        assert int(some * scale / scale) == some
        p, q = some * scale, total * scale
        assert p / q == some / total  # divided by the row's sum: the probability
        assert abs(p - some / total) <= (bound + 2.0**-53) * (some / total)


def test_probabilities_are_exact_for_a_power_of_two_of_trees() -> None:
    for n_trees in (1, 2, 8):
        model = random_model(7, mixed_schema(), n_trees=n_trees)
        rows = extreme_rows(model)
        assert np.array_equal(predict(model, rows), wanted(model, rows).number)


LINKED = {
    "boosted_two": 4e-16,
    "boosted_each": 4e-16,
    "boosted_share": 4e-16,
    "boosted_counts": 4e-16,
    "linked_means": 4e-16,
    "boosted_four": 1e-7,
}


@pytest.mark.parametrize("name", sorted(LINKED))
def test_link_functions_of_treelite_are_within_their_bounds(name: str) -> None:
    model = EXTREMES[name]()
    rows = extreme_rows(model)
    want, outputs = wanted(model, rows).number, predict(model, rows)
    if outputs.shape[1] < want.shape[1]:
        want = want[:, 1:]  # Treelite returns the probability of the second class
    differences = np.abs(outputs - want)
    relative = 0.0 if name == "boosted_four" else LINKED[name]
    assert np.all(differences <= LINKED[name] + relative * np.abs(want))


def test_checkpoint_attributes_hold_columns_and_classes() -> None:
    model = EXTREMES["several_labels"]()
    accessor = read(model).get_header_accessor()
    attributes = json.loads(str(accessor.get_field("attributes")))["treekit"]
    assert [one["name"] for one in attributes["columns"]] == [c.name for c in model.schema.columns]
    assert [one["classes"] for one in attributes["outputs"]] == [
        list(output.classes) for output in model.schema.outputs
    ]


def test_exporter_passes_the_contract_checks() -> None:
    check_exporter("treelite")


def test_verify_reports_a_changed_checkpoint(tmp_path: Path) -> None:
    model = EXTREMES["mixed"]()
    path = write(model, tmp_path)
    assert verify(model, [path]).equal
    other = random_model(8, model.schema, n_trees=model.n_trees)
    path.write_bytes(export_treelite(other, "model")["model.tl"])
    assert not verify(model, [path]).equal


@pytest.mark.parametrize("damage", ["truncated", "other columns", "other classes"])
def test_verify_refuses_a_damaged_or_other_checkpoint(damage: str, tmp_path: Path) -> None:
    model = EXTREMES["mixed"]()
    path = write(model, tmp_path)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:1000])
    else:
        path = write(
            EXTREMES["two_thousand_features" if "col" in damage else "one_leaf"](), tmp_path
        )
    rows = extreme_rows(model)
    with pytest.raises(VerificationError, match=r"failed with|differs from the model"):
        list(find_runner(path).run_rows(path, model.schema, rows))


def test_command_exports_and_verifies(tmp_path: Path) -> None:
    model = EXTREMES["mixed"]()
    made = treekit.export(model, "treelite", tmp_path / "checkpoint.tl")
    assert made == [tmp_path / "checkpoint.tl"]
