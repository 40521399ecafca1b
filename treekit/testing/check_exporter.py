"""Laws of an exporter, tested on the files that it writes and by running them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import Exporter
from treekit.data.schema import Schema
from treekit.errors import ExportError, VerificationError
from treekit.export import find_file_problem, write_files
from treekit.model.builder import Node, Surrogate, is_missing, leaf, multiway, subset, threshold
from treekit.model.model import Model
from treekit.model.model_file import load
from treekit.model.tree import FIELD_DTYPES
from treekit.testing.example_models import (
    COLUMNS,
    NUMBER,
    SampleModel,
    iter_hostile_alone,
    iter_samples,
    make_cut,
    make_deepest,
    make_example_model,
    make_example_probes,
    make_hostile,
    make_yes_no,
)
from treekit.testing.laws import Laws, Subject, blame_error, break_law, format_exception, skip_law
from treekit.testing.report import Law
from treekit.verify.answers import (
    REFUSED,
    Answers,
    describe_answer,
    differing,
    encode_labels,
    expected,
    take_answers,
)
from treekit.verify.probe_values import decode_cells
from treekit.verify.run_artifact import list_runners

# ---------------------------------------------------------------- laws

EXPORT_NAME = "model"
Files = Mapping[str, bytes]

WRITES_OR_REFUSES = Law(
    "writes-or-refuses-by-name",
    "A model is written, or rejected by a treekit.ExportError that names the unsupported part.",
    "the exception: raise ExportError for what the target cannot express",
)
FILES = Law(
    "main-file-first",
    "`export(model, name)` returns a mapping of file names to bytes, `name + suffix` first; "
    "if the suffix begins with a slash, of paths in the folder `name`.",
    "the result of `export`: `.encode()` texts, and put the main file first",
)
SOMETHING = Law(
    "writes-a-model",
    "Some models are written: a threshold, a leaf, a set of categories, a number.",
    "the reason why every model is rejected",
)
REPEATS = Law(
    "same-model-same-bytes",
    "Equal models give equal bytes, every time.",
    "the time, random names, `id()`, the order of a set, absolute paths",
)
UNTOUCHED = Law(
    "model-is-not-touched",
    "An export does not change the model.",
    "assignments to the model's arrays, settings and provenance: copy them first",
)
DEEP = Law(
    "deep-trees-are-written",
    "A tree of 5,000 nested splits is written, or rejected by an ExportError.",
    "recursion: `treekit.export.lowering` makes functions of subtrees; tables need none",
)
HOSTILE = Law(
    "names-are-only-data",
    "Names, categories and labels are written as inert text, or rejected by an ExportError.",
    "each place where a name is written: use `string_literal` of treekit.export.literals",
)
MISSING = Law(
    "missing-values-are-written",
    "Models that treat missing values differently are written differently, or rejected.",
    "`missing_yes` of a step, `Model.missing`, surrogates: write them out, or raise ExportError",
)
UNSEEN = Law(
    "unseen-values-are-written",
    "Models that treat unseen categories differently are written differently, or rejected.",
    "`Model.unknown`, and the categories that a step does not list",
)
DIFFERENCES = Law(
    "differences-are-written",
    "Models with different predictions are written differently, or rejected.",
    "numbers that are rounded (write `repr`), and parts of a model that are never read",
)
EQUAL_BITS = Law(
    "equal-bits",
    "The exported files give the model's prediction for every row, to the last bit.",
    "the row: the side of a missing value, `<=`, ties of labels, the one final division",
)


@dataclass(frozen=True)
class ExporterSubject(Subject):
    """An exporter, and the way to run its files.

    Attributes
    ----------
    execute : callable or None
        Runs the files; None: they cannot be run.
    """

    execute: ExecuteFunction | None = None

    def export_files(self, sample: SampleModel, law: Law = WRITES_OR_REFUSES) -> Files | None:
        """Return the checked files written for a model; None if it is rejected.

        `law` is broken by an exception other than a rejection.
        """
        call = f"export(<{sample.what}>, {EXPORT_NAME!r})"
        try:
            files = self.record.export(sample.model, EXPORT_NAME, **self.settings)
        except ExportError as refusal:
            if not str(refusal).strip():
                got = "an ExportError without a message"
                break_law(call, got, "the unsupported part by name", law=WRITES_OR_REFUSES)
            return None
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            blame_error(call, error, "files, or an ExportError", law)
        main, problem = EXPORT_NAME + self.record.suffix, f"{files!r:.80}"
        if isinstance(files, Mapping):
            problem = find_file_problem(files, main)
        if problem:
            break_law(call, problem, f"{{{main!r}: b'...', ...}}", law=FILES)
        return dict(files)


def make_exporter_subject(
    record: Exporter, settings: Mapping[str, Any], run: RunFunction | None = None
) -> ExporterSubject:
    """Choose how to run the files of an exporter."""
    execute = wrap_run(run) if run else None
    if run is None and record.runner is not None:
        make_runner = record.runner
        execute = lambda *arguments: make_runner().run_rows(*arguments)  # noqa: E731
    elif run is None:
        for runner in list_runners():
            execute = runner.run_rows if runner.suffix == record.suffix else execute
    return ExporterSubject(record, settings, execute=execute)


def _check_writes(subject: ExporterSubject) -> None:
    for sample in iter_samples():
        subject.export_files(sample)


def _check_something_written(subject: ExporterSubject) -> None:
    if all(subject.export_files(sample) is None for sample in iter_samples()):
        break_law("models of every kind", "all are rejected", "files of some of them")


def _check_repeated_exports(subject: ExporterSubject) -> None:
    for sample in iter_samples():
        first = subject.export_files(sample)
        if first is None:
            continue
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            path = Path(folder) / "copy.treekit"
            sample.model.save(path)
            equal = SampleModel(sample.what, load(path))
        for what, model in (("a second time", sample), ("of an equal model", equal)):
            again = subject.export_files(model) or {}
            if again != first:
                call = f"export(<{sample.what}>) {what}"
                break_law(call, _describe_difference(first, again), "equal bytes")


def _describe_difference(first: Files, again: Files) -> str:
    """Describe the first difference of two exports of a model."""
    for name, content in first.items():
        other = again.get(name)
        if other is None:
            return f"no file {name!r}"
        if other != content:
            same = os.path.commonprefix([content, other])  # noqa: RUF071 - of bytes
            start = max(len(same) - 20, 0)
            part = slice(start, start + 40)
            return f"{other[part]!r} for {content[part]!r} in {name!r}"
    return f"different files: {', '.join(again)}"


def _check_untouched(subject: ExporterSubject) -> None:
    for sample in iter_samples():
        before = _get_state(sample.model)
        subject.export_files(sample)
        for name, value in _get_state(sample.model).items():
            if value != before[name]:
                call = f"export(<{sample.what}>)"
                break_law(call, f"its {name} was changed", f"its {name} unchanged")


def _get_state(model: Model) -> dict[str, Any]:
    """Return all parts of a model by name, as comparable values."""
    state = {f.name: _freeze(getattr(model, f.name)) for f in fields(model) if f.name != "trees"}
    for number, tree in enumerate(model.trees):
        state |= {f"trees[{number}].{name}": _freeze(getattr(tree, name)) for name in FIELD_DTYPES}
    return state


def _freeze(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


def _check_deep(subject: ExporterSubject) -> None:
    subject.export_files(make_deepest(), DEEP)


def _check_hostile(subject: ExporterSubject) -> None:
    alone = list(iter_hostile_alone())
    for sample in alone:
        subject.export_files(sample, HOSTILE)
    named, harmless = make_hostile()
    is_sound = _find_fault(subject, harmless, HOSTILE) is None  # else the names are not at fault
    if is_sound and _find_fault(subject, named, HOSTILE) is not None:
        for sample in (*alone, named):  # a single name first, for the smallest example
            _check_sample(subject, sample, HOSTILE)


def _check_different_files(
    subject: ExporterSubject, iter_pairs: Callable[[], Iterator[ModelPair]]
) -> None:
    for what, *models in iter_pairs():
        one, other = (subject.export_files(SampleModel(what, model)) for model in models)
        if one is not None and one == other:
            expected = "different files or an error"
            break_law(f"two models that differ in {what}", "the same files", expected)


def _check_equal_bits(subject: ExporterSubject) -> None:
    if subject.execute is None:
        skip_law("its files cannot be run without its runner, or check_exporter(..., run=...)")
    for sample in iter_samples():
        _check_sample(subject, sample, WRITES_OR_REFUSES)


def _check_sample(subject: ExporterSubject, sample: SampleModel, law: Law) -> None:
    """Run the files written for a model; raise `LawBroken` if a prediction differs."""
    found = _find_fault(subject, sample, law)
    if found is not None:
        row, got, wanted = found
        break_law(f"export(<{sample.what}>), run on {row}", got, wanted)


# ---------------------------------------------------------------- running files

RunFunction = Callable[[Path, Schema, Sequence[Sequence[float | str | None]]], Sequence[Any]]
"""``run(path, schema, rows)`` returns a prediction a row; see `treekit.testing.check_exporter`."""

ExecuteFunction = Callable[[Path, Schema, npt.NDArray[np.float64]], Iterator[tuple[str, Answers]]]
"""The same for rows of numbers and codes, as in `treekit.verify`: yields ways and predictions."""


def wrap_run(run: RunFunction) -> ExecuteFunction:
    """Wrap an author's function to take rows of numbers and codes."""

    def execute_rows(
        path: Path, schema: Schema, rows: npt.NDArray[np.float64]
    ) -> Iterator[tuple[str, Answers]]:
        predictions = list(run(path, schema, [decode_cells(schema, row) for row in rows]))
        if len(predictions) != len(rows):
            raise VerificationError(
                f"run returned {len(predictions)} predictions for {len(rows)} rows; expected one "
                "for each row"
            )
        yield "run", _convert_answers(schema, predictions)

    return execute_rows


def _convert_answers(schema: Schema, predictions: list[Any]) -> Answers:
    """Convert predictions of the form ``(labels, numbers)``, None where a row is refused."""
    n_labels = len(schema.outputs) if schema.task == "classification" else 0
    label = np.zeros((len(predictions), len(schema.outputs)), dtype=np.int64)
    number = np.zeros((len(predictions), schema.n_values))
    for i, answer in enumerate(predictions):
        if answer is None:
            label[i] = REFUSED
            continue
        try:
            labels, numbers = answer
            number[i] = numbers
            if len(labels) != n_labels:
                raise ValueError(f"labels has length {len(labels)}")
        except (TypeError, ValueError) as error:
            raise VerificationError(
                f"run returned {answer!r} ({error}); expected a pair of sequences, labels of "
                f"length {n_labels} and numbers of length {schema.n_values}, or None where the "
                "row is refused"
            ) from error
        for k in range(n_labels):
            label[i, k] = encode_labels(schema.outputs[k], [labels[k]])[0]
    return Answers(label, number)


def _find_fault(
    subject: ExporterSubject, sample: SampleModel, law: Law
) -> tuple[str, str, str] | None:
    """Return the first row for which files and their model differ: the row, got, expected.

    None if there is none, or nothing to run.  Files that cannot be run count as a difference.
    """
    files, model = subject.export_files(sample, law), sample.model
    if files is None or subject.execute is None:
        return None
    probes, schema = make_example_probes(model), model.schema
    rows = np.concatenate([probes.rows, probes.refused])
    wanted = expected(model, rows, len(probes.refused))
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        main = write_files(Path(folder), files)[0]
        try:
            for _, given in subject.execute(main, schema, rows):
                part = take_answers(wanted, slice(len(given.label)))
                found = differing(part, given)
                if len(found):
                    row = int(found[0])
                    cells = dict(zip(schema.names, decode_cells(schema, rows[row]), strict=True))
                    got, correct = (describe_answer(schema, one, row) for one in (given, part))
                    return f"the row {cells}", got, correct
        except Exception as error:  # noqa: BLE001 - an author's function, and what it runs
            return "rows of all kinds", format_exception(error), "predictions"
    return None


# ---------------------------------------------------------------- pairs of models
# Pairs of models that differ in the prediction for some row, so that their files must differ.

FEW, MANY = leaf([5.0, 0.0]), leaf([1.0, 6.0])
CUT = 0.5


ModelPair = tuple[str, Model, Model]
"""A description of the difference of two models, and the models."""


def _make_pair(what: str, one: Node, other: Node, **policies: Any) -> ModelPair:
    return what, make_yes_no(one, **policies), make_yes_no(other, **policies)


def _make_policy_pair(what: str, node: Node, **policies: Any) -> ModelPair:
    return what, make_yes_no(node), make_yes_no(node, **policies)


def iter_missing_pairs() -> Iterator[ModelPair]:
    """Yield models that differ in the treatment of missing values."""
    cut, sets = make_cut(CUT), [subset("colour", ["red"], FEW, MANY, side) for side in (0, 1)]
    branches = {"red": FEW, "green": MANY, "blue": MANY}
    children = [multiway("colour", branches, missing) for missing in (0, 1)]
    tests = is_missing("size", FEW, MANY), is_missing("size", MANY, FEW)
    surrogates = [(Surrogate("age", 2.5, below=side),) for side in (0, 1)]
    sides = [threshold("size", CUT, FEW, MANY, 1, own) for own in surrogates]
    yield _make_pair("the side of missing numbers", make_cut(CUT, 0), cut)
    yield _make_pair("the side of missing categories", *sets)
    yield _make_pair("the branch of missing categories", *children)
    yield _make_pair("the sides of a missing split", *tests)
    yield _make_policy_pair("whether missing numbers are an error", cut, missing="error")
    yield _make_policy_pair("whether missing categories are an error", sets[0], missing="error")
    what = "whether missing numbers make fractional instances"
    yield _make_policy_pair(what, cut, missing="fractional")
    yield _make_pair("the side of a surrogate", *sides, missing="surrogate")


def iter_unseen_pairs() -> Iterator[ModelPair]:
    """Yield models that differ in the treatment of unseen texts and categories."""
    sides = [subset("colour", ["red"], FEW, MANY, 0, absent) for absent in ((), ["blue"])]
    yield _make_policy_pair("whether unseen categories are an error", sides[0], unknown="error")
    yield _make_pair("the side of a category unseen at a split", *sides)


def iter_answer_pairs() -> Iterator[ModelPair]:
    """Yield models that differ in a threshold, a leaf, a category or a label."""
    up = float(np.nextafter(np.float32(CUT), np.float32(1)))
    cut, sets = make_cut(CUT), [["red"], ["red", "blue"]]
    yield _make_pair("the last bit of a threshold", cut, make_cut(up))
    yield _make_pair("the split feature", cut, make_cut(CUT, column="age"))
    yield _make_pair("a category of a set", *(subset("colour", own, FEW, MANY) for own in sets))
    leaves = [threshold("size", CUT, FEW, leaf([1.0, weight])) for weight in (6.0, 6.0001)]
    yield _make_pair("the shares of a leaf", *leaves)
    numbers = [threshold("size", CUT, leaf(1.0), leaf(value)) for value in (0.1, 0.1 + 1e-9)]
    one, other = (make_example_model(NUMBER, node) for node in numbers)
    yield "the number of a leaf", one, other
    yield "the number of trees", make_yes_no(cut), make_yes_no(cut, make_cut(2.0))
    maybe = Schema(COLUMNS, "y", classes=("no", "maybe"))
    wide = Schema(COLUMNS, "y", classes=("no", "yes"), dtype="float64")
    yield "a label", make_yes_no(cut), make_example_model(maybe, cut)
    yield "the type of the inputs", make_yes_no(cut), make_example_model(wide, cut)
    trees = cut, make_cut(2.0), make_cut(-1.0)
    hard = make_yes_no(*trees, voting="hard")
    yield "soft or hard votes", make_yes_no(*trees), hard
    costs = np.array([[0, 1], [9, 0]], dtype=np.int64)
    yield _make_policy_pair("misclassification costs", cut, costs=costs)


EXPORTER_LAWS: Laws = (
    (_check_writes, WRITES_OR_REFUSES, FILES),
    (_check_something_written, SOMETHING),
    (_check_repeated_exports, REPEATS),
    (_check_untouched, UNTOUCHED),
    (_check_deep, DEEP),
    (partial(_check_different_files, iter_pairs=iter_missing_pairs), MISSING),
    (partial(_check_different_files, iter_pairs=iter_unseen_pairs), UNSEEN),
    (partial(_check_different_files, iter_pairs=iter_answer_pairs), DIFFERENCES),
    (_check_equal_bits, EQUAL_BITS),
    (_check_hostile, HOSTILE),
)
