"""The conformance checks of exporters and importers, on built-in and faulty ones."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from treekit import Exporter, ExportError, Importer, ModelError, registry
from treekit.data.schema import Column, Schema
from treekit.export.lowering import lower
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.model import hash_model, make_model
from treekit.model.scoring import sum_leaf_values
from treekit.testing import ConformanceError, check_exporter, check_importer
from treekit.testing.check_exporter import iter_answer_pairs, iter_missing_pairs, iter_unseen_pairs
from treekit.testing.check_importer import iter_damaged
from treekit.testing.example_models import (
    iter_hostile_alone,
    iter_samples,
    make_example_probes,
    make_hostile,
)

PYTHON = registry.get("exporter", "python")


def broken(report):
    return [breach.law.name for breach in report.breaches]


MATRIX = pytest.mark.matrix


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=MATRIX) for name in ("c", "onnx", "python")), "rules"]
)
def test_every_built_in_exporter_passes_the_contract_checks(name):
    report = check_exporter(name, strict=True)
    assert {verdict.state for verdict in report.verdicts} == {"holds"}


def test_sample_models_cover_every_kind_of_model():
    models = [sample.model for sample in iter_samples()]
    for kind in range(6):
        assert any((tree.kind == kind).any() for model in models for tree in model.trees)
    assert {model.missing for model in models} == {"direction", "fractional", "surrogate", "error"}
    assert {model.schema.task for model in models} == {"classification", "regression"}
    assert {type(label) for model in models for label in model.schema.classes} == {
        *(bool, int, float, str)
    }
    assert any(model.schema.more for model in models)
    assert len(list(iter_hostile_alone())) > len(make_hostile()[0].model.schema.columns)


@pytest.mark.parametrize(
    "pair", [*iter_missing_pairs(), *iter_unseen_pairs(), *iter_answer_pairs()]
)
def test_a_pair_of_models_predicts_some_row_differently(pair):
    _, one, other = pair
    if one.schema != other.schema:  # labels, or the type of inputs
        return
    answers = []
    for model in (one, other):
        rows = make_example_probes(one).rows
        takes = ~np.isnan(rows).any(axis=1) | (model.missing != "error")
        if "error" in (model.missing, model.unknown):
            takes &= (rows[:, 1] != rows[:, 1]) | np.isin(rows[:, 1], (0, 1, 2))
        total = np.full((len(rows), model.schema.n_values), -1.0)
        whole = model.n_trees if model.part_bits else model.n_trees * model.mass
        total[takes] = sum_leaf_values(model, rows[takes]) / whole
        answers.append(total.tobytes() + repr(model.costs).encode())
    assert answers[0] != answers[1]


class Wrapped:
    """A target with a fault: the digest of a model, or, ending in .py, the target "python"."""

    def __init__(self, suffix=".own", declared=None):
        self.suffix, self.declared = suffix, declared or suffix

    def record(self):
        return Exporter("own", self.declared, self.export)

    def text(self, model):
        if self.suffix == ".py":
            return PYTHON.export(model, "m", form="full")["m.py"]
        return hash_model(model).encode()

    def export(self, model, name):
        return {f"{name}{self.suffix}": self.text(model)}


class Texts(Wrapped):
    def export(self, model, name):
        return {file: text.decode() for file, text in super().export(model, name).items()}


class HeaderFirst(Wrapped):
    def export(self, model, name):
        return {f"{name}.h": b"", **super().export(model, name)}


class WritesOutside(Wrapped):
    def export(self, model, name):
        return {**super().export(model, name), "../more": b""}


class RandomBytes(Wrapped):
    def export(self, model, name):
        return {f"{name}.own": self.text(model) + f"# {random.random()}\n".encode()}


class ObjectIds(Wrapped):
    def export(self, model, name):
        return {f"{name}.own": self.text(model) + f"# {id(model)}\n".encode()}


class ClassesOnly(Wrapped):
    def export(self, model, name):
        str(model.schema.classes[0])  # an IndexError for a regression
        return super().export(model, name)


class EmptyMessage(Wrapped):
    def export(self, model, name):
        if model.schema.task == "regression":
            raise ExportError("")
        return super().export(model, name)


class RefusesEverything(Wrapped):
    def export(self, model, name):
        raise ExportError("this is too hard")


class ChangesSettings(Wrapped):
    def export(self, model, name):
        model.settings["exported"] = True
        return super().export(model, name)


class ChangesGains(Wrapped):
    def export(self, model, name):
        gain = model.trees[0].gain
        gain.flags.writeable = True
        gain[0] += 1
        return super().export(model, name)


class Recursive(Wrapped):
    def export(self, model, name):
        def walk(tree, node):
            return [walk(tree, tree.first_child[node] + b) for b in range(tree.n_children[node])]

        walk(model.trees[0], 0)
        return super().export(model, name)


class MissingAlwaysNo(Wrapped):
    """Thresholds and leaves as JSON; a missing value says no, whatever the model says."""

    side = "no"

    def export(self, model, name):
        trees = lower(model)
        if model.missing != "direction" or model.label_costs is not None:
            raise ExportError("this target has no refusals and no costs")
        return {f"{name}.own": json.dumps(self.told(model, trees)).encode()}

    def told(self, model, trees):
        nodes = [
            [[int(v) for v in node] for node in zip(t.kind, t.feature, t.yes, t.no, strict=True)]
            for t in trees
        ]
        at = [[repr(x) for x in tree.threshold.tolist()] for tree in trees]
        sets = [[tree.codes(i).tolist() for i in range(tree.n_nodes)] for tree in trees]
        answers = [model.units.tolist(), model.exponent, list(model.schema.classes)]
        return [nodes, at, sets, *answers, model.schema.dtype, model.unknown]


class RoundsThresholds(MissingAlwaysNo):
    def told(self, model, trees):
        told = super().told(model, trees)
        told[1] = [[f"{x:.4f}" for x in tree.threshold.tolist()] for tree in trees]
        return [*told, [tree.missing_yes.tolist() for tree in trees]]


class IgnoresUnseenPolicy(MissingAlwaysNo):
    def told(self, model, trees):
        told = super().told(model, trees)
        return [*told[:-1], [tree.missing_yes.tolist() for tree in trees]]


class Unescaped(Wrapped):
    def export(self, model, name):
        names = "".join(f"# {column.name}\n" for column in model.schema.columns)
        return {f"{name}.py": names.encode(errors="replace") + self.text(model)}


class StrictComparison(Wrapped):
    def export(self, model, name):
        return {f"{name}.py": self.text(model).replace(b" <= ", b" < ")}


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (Texts(), "main-file-first"),
        pytest.param(HeaderFirst(), "main-file-first", marks=MATRIX),
        (WritesOutside(), "main-file-first"),
        pytest.param(Wrapped(declared=".txt"), "main-file-first", marks=MATRIX),
        (RandomBytes(), "same-model-same-bytes"),
        pytest.param(ObjectIds(), "same-model-same-bytes", marks=MATRIX),
        pytest.param(ClassesOnly(), "writes-or-refuses-by-name", marks=MATRIX),
        (EmptyMessage(), "writes-or-refuses-by-name"),
        (RefusesEverything(), "writes-a-model"),
        pytest.param(ChangesSettings(), "model-is-not-touched", marks=MATRIX),
        (ChangesGains(), "model-is-not-touched"),
        (Recursive(), "deep-trees-are-written"),
        (MissingAlwaysNo(), "missing-values-are-written"),
        (IgnoresUnseenPolicy(), "unseen-values-are-written"),
        (RoundsThresholds(), "differences-are-written"),
        pytest.param(Unescaped(".py"), "names-are-only-data", marks=MATRIX),
        pytest.param(StrictComparison(".py"), "equal-bits", marks=MATRIX),  # below, too
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Wrapped) else value,
)
def test_each_faulty_exporter_breaches_exactly_its_law(fault, law):
    report = check_exporter(fault.record(), fail=False)
    assert broken(report) == [law]


@pytest.mark.matrix
def test_a_breach_shows_the_smallest_model_the_row_and_both_predictions():
    with pytest.raises(ConformanceError) as failure:
        check_exporter(StrictComparison(".py").record())
    text = str(failure.value)
    assert "smallest example: export(<a threshold>), run on the row {'size': 0.1" in text
    assert "got:              'yes', probabilities [0.1999" in text
    assert "expected:         'no', probabilities [0.75, 0.25]" in text


@pytest.mark.matrix
def test_an_exception_is_shown_with_the_line_that_raised_it():
    (breach,) = check_exporter(ClassesOnly().record(), fail=False).breaches
    assert breach.example == "export(<numbers of fractional instances>, 'model')"
    assert breach.got == "IndexError: tuple index out of range"
    assert "model.schema.classes[0]" in breach.look


@pytest.mark.matrix
def test_files_without_a_runner_are_checked_by_all_other_laws():
    report = check_exporter(Wrapped().record())
    states = {verdict.law.name: verdict.state for verdict in report.verdicts}
    assert states.pop("equal-bits") == "does not apply"
    assert set(states.values()) == {"holds"}


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("run", "what"),
    [
        (lambda path, schema, rows: [(["?"], [1, 0])] * len(rows), "not one of the classes"),
        *(
            pytest.param(run, what, marks=MATRIX)
            for run, what in (
                (lambda path, schema, rows: [], "run returned 0 predictions"),
                (lambda path, schema, rows: [1] * len(rows), "labels of length 1 and"),
                (lambda path, schema, rows: 1 / 0, "ZeroDivisionError"),
                (lambda path, schema, rows: [None] * len(rows), "row refused"),
            )
        ),
    ],
)
def test_invalid_results_of_runners_breach_equal_bits(run, what):
    (breach,) = check_exporter(Wrapped().record(), run=run, fail=False).breaches
    assert breach.law.name == "equal-bits"
    assert what in breach.got


@pytest.mark.matrix
def test_files_are_run_by_the_runner_of_their_exporter():
    record = replace(Wrapped().record(), runner=lambda: 1 / 0)
    (breach,) = check_exporter(record, fail=False).breaches
    assert breach.law.name == "equal-bits"
    assert "ZeroDivisionError" in breach.got


# ------------------------------------------------------------------ importers


def numbers(rows):
    return np.array(rows, dtype=np.float64).clip(-1e30, 1e30)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3)).round(2)
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0.3)
    return [
        DecisionTreeClassifier(max_depth=4, random_state=0).fit(x, y),
        RandomForestClassifier(5, max_depth=3, random_state=0).fit(x, y),
        ExtraTreesRegressor(5, max_depth=3, random_state=0).fit(x, 3 * x[:, 2]),
    ]


def test_built_in_importer_passes_the_contract_checks(fitted):
    report = check_importer(
        "scikit-learn",
        sources=fitted,
        predict=lambda source, schema, rows: source.predict(numbers(rows)),
        missing=False,
        strict=True,
    )
    states = {verdict.law.name: verdict.state for verdict in report.verdicts}
    assert states.pop("corrupt-files-are-refused") == "does not apply"  # there are no files
    assert set(states.values()) == {"holds"}


def test_damaged_sample_files_lack_the_named_line():
    lines = [f"{number}\n".encode() for number in range(1, 9)]
    cut = [
        name.split() for name, _ in iter_damaged(b"".join(lines)) if name.startswith("without line")
    ]
    files = dict(iter_damaged(b"".join(lines)))
    assert len(cut) == len(lines)
    for *_, number in cut:
        gone = lines[: int(number) - 1] + lines[int(number) :]
        assert files[f"without line {number}"] == b"".join(gone)


def test_importer_without_sources_is_checked_on_foreign_objects_only():
    report = check_importer("scikit-learn")
    held = {verdict.law.name for verdict in report.verdicts if verdict.state == "holds"}
    assert {"foreign-things-are-passed-over", "read-refuses-by-name"} <= held
    assert "predictions-are-equal" not in held


class Stumps:
    """Reads ``{"at": 0.5, "left": [3, 1], "right": [0, 2]}``, as it should be."""

    def record(self):
        return Importer("own", self.recognises, self.read)

    def recognises(self, source):
        ends = isinstance(source, Path) and source.suffix == ".stump"
        return ends and source.name.isascii() and len(source.name) < 99 and source.exists()

    def read(self, source):
        try:
            told = json.loads(source.read_text(encoding="utf-8"))
            return self.model(float(told["at"]), told["left"], told["right"])
        except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            raise ModelError(f"{source!r:.80} is no stump: {error}") from error

    def model(self, at, left, right, **other):
        schema = Schema((Column("x"),), classes=(0, 1), dtype="float64")
        root = threshold("x", at, leaf(left), leaf(right), 0)
        return make_model(schema, [build_tree(root, schema)], **other)


def predict(source, schema, rows):
    told = json.loads(source.read_text(encoding="utf-8"))
    return [
        int(np.argmax(told["left" if x is None or x <= told["at"] else "right"])) for (x,) in rows
    ]


class RecognisesEverything(Stumps):
    def recognises(self, source):
        return True


class AssumesPath(Stumps):
    def recognises(self, source):
        return source.suffix == ".stump" and super().recognises(source)


class RecognisesWithNone(Stumps):
    def recognises(self, source):
        return super().recognises(source) or None


class RecognisesBySuffix(Stumps):
    def recognises(self, source):
        return isinstance(source, Path) and source.suffix == ".stump"


class RecognisesOtherSuffix(Stumps):
    def recognises(self, source):
        return super().recognises(source) and source.suffix == ".tree"


class RaisesRawErrors(Stumps):
    def read(self, source):
        if not isinstance(source, Path):
            raise ModelError("only files")
        told = json.loads(source.read_bytes())
        return self.model(told["at"], told["left"], told["right"])


class ReadsNonPaths(Stumps):
    def read(self, source):
        return super().read(Path(source))


class UnbalancedUnits(Stumps):
    """Takes the leaf's units as they come."""

    def model(self, at, left, right):
        model = super().model(at, left, right)
        object.__setattr__(model, "units", model.units + 1)
        return model


class ReturnsDict(Stumps):
    def model(self, at, left, right):
        return {"at": at} if super().model(at, left, right) else None


class ReadsDifferently(Stumps):
    times = 0

    def model(self, at, left, right):
        self.times += 1
        return super().model(at + self.times * 1e-3, left, right)


class WritesBesideSource(Stumps):
    def read(self, source):
        model = super().read(source)
        source.with_suffix(".log").write_text("read", encoding="utf-8")
        return model


class StrictThreshold(Stumps):
    """Takes ``<=`` of the file for ``<``."""

    def model(self, at, left, right):
        return super().model(float(np.nextafter(at, -np.inf)), left, right)


@pytest.mark.parametrize(
    ("fault", "laws"),
    [
        (Stumps(), []),
        (RecognisesEverything(), ["foreign-things-are-passed-over"]),
        *(
            pytest.param(fault, ["foreign-things-are-passed-over"], marks=MATRIX)
            for fault in (AssumesPath(), RecognisesWithNone(), RecognisesBySuffix())
        ),
        (RecognisesOtherSuffix(), ["own-sources-are-recognised"]),
        (RaisesRawErrors(), ["corrupt-files-are-refused"]),
        (ReadsNonPaths(), ["read-refuses-by-name"]),
        (UnbalancedUnits(), ["reads-a-model"]),
        pytest.param(ReturnsDict(), ["reads-a-model"], marks=MATRIX),
        (ReadsDifferently(), ["same-source-same-model", "predictions-are-equal"]),
        (WritesBesideSource(), ["source-is-not-touched"]),
        (StrictThreshold(), ["predictions-are-equal"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Stumps) else "",
)
def test_each_faulty_importer_breaches_exactly_its_law(fault, laws, tmp_path: Path):
    paths = [tmp_path / "one.stump", tmp_path / "two.stump"]
    paths[0].write_text('{"at": 0.5, "left": [3, 1], "right": [0, 2]}', encoding="utf-8")
    paths[1].write_text('{"at": -1e300, "left": [0, 1],\n "right": [4, 2]}', encoding="utf-8")
    report = check_importer(fault.record(), sources=paths, predict=predict, fail=False)
    assert broken(report) == laws
