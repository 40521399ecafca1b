"""Laws of an exporter, judged by what it writes and by running that."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treekit.contracts import Exporter
from treekit.errors import ExportError
from treekit.export import is_place
from treekit.model.model import Model
from treekit.model.model_file import load
from treekit.model.tree import DTYPES
from treekit.testing.artifacts import Execute, difference
from treekit.testing.calls import look_at, said_by
from treekit.testing.laws import Test, broken, inapplicable
from treekit.testing.models import Sample, deepest, hostile, hostile_alone, samples
from treekit.testing.pairs import Pair, answer_pairs, missing_pairs, unseen_pairs
from treekit.testing.report import Law

__all__ = ["EXPORTER_LAWS", "Subject"]

STEM = "model"
Files = Mapping[str, bytes]

WRITES_OR_REFUSES = Law(
    "writes-or-refuses-by-name",
    "A model is written, or refused by a treekit.ExportError that says what it cannot express.",
    "the exception: raise ExportError for what the target has no words for",
)
FILES = Law(
    "main-file-first",
    "`export(model, name)` returns a mapping of plain file names to bytes, first `name + suffix`; "
    "where the suffix begins with a slash, paths in the folder `name`.",
    "what `export` returns: `.encode()` texts, and put the main file first",
)
SOMETHING = Law(
    "writes-a-model",
    "Some models are written: a threshold, a leaf, a set of levels, a number.",
    "what every model is refused for",
)
REPEATS = Law(
    "same-model-same-bytes",
    "Equal models are written with equal bytes, every time.",
    "the time, random names, `id()`, the order of a set, absolute paths",
)
UNTOUCHED = Law(
    "model-is-not-touched",
    "The model is after an export what it was before.",
    "assignments to the model's arrays, settings and provenance: take a copy first",
)
DEEP = Law(
    "deep-trees-are-written",
    "A tree of 5,000 splits one below the other is written, or refused by name.",
    "recursion: `treekit.export.nested_tests` makes functions of subtrees, tables need none",
)
HOSTILE = Law(
    "names-are-only-data",
    "Names, levels and labels are written as text that can do nothing, or refused by name.",
    "each place where a name is written: `string_literal` of treekit.export.literals",
)
MISSING = Law(
    "missing-values-are-written",
    "Models that differ in what a missing value does are written differently, or refused.",
    "`missing_yes` of a step, `model.missing`, surrogates: write them out, or raise ExportError",
)
UNSEEN = Law(
    "unseen-values-are-written",
    "Models that differ in what an unseen level does are written differently, or refused.",
    "`model.unknown`, and the levels that a step does not list",
)
DIFFERENCES = Law(
    "differences-are-written",
    "Models that answer differently are written differently, or refused.",
    "numbers that are rounded (write `repr`), and what of a model is never looked at",
)
EQUAL_BITS = Law(
    "equal-bits",
    "What is written answers every row as the model does, to the last bit.",
    "the row: the side of a missing value, `<=`, ties of labels, the one division at the end",
)


@dataclass(frozen=True)
class Subject:
    """An exporter under its settings, and how its files are run.

    Attributes
    ----------
    record : Exporter
    settings : dict
    execute : callable or None
        See `treekit.testing.artifacts`; None: they cannot be run.
    """

    record: Exporter
    settings: dict[str, Any]
    execute: Execute | None = None

    def files(self, sample: Sample, law: Law = WRITES_OR_REFUSES) -> Files | None:
        """What is written for a model, checked; None if it is refused.

        `law` is broken by an exception that is no refusal.
        """
        call = f"export(<{sample.what}>, {STEM!r})"
        try:
            files = self.record.export(sample.model, STEM, **self.settings)
        except ExportError as refusal:
            if not str(refusal).strip():
                broken(call, "an ExportError without a message", "what it cannot express",
                       law=WRITES_OR_REFUSES.name)  # fmt: skip
            return None
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            broken(call, said_by(error), "files, or an ExportError", law=law.name,
                   look=look_at(error, law))  # fmt: skip
        problem = self._problem(files)
        if problem:
            broken(call, problem, f"{{{STEM + self.record.suffix!r}: b'...', ...}}", law=FILES.name)
        return dict(files)

    def _problem(self, files: Any) -> str:
        """What is wrong with the files of a model, or nothing."""
        if not isinstance(files, Mapping) or not files:
            return f"{files!r:.80}"
        folder = STEM if self.record.suffix.startswith("/") else ""
        for name, content in files.items():
            if not isinstance(name, str) or not is_place(name, folder):
                return f"a file {name!r}, which is no plain name"
            if not isinstance(content, bytes):
                return f"{name!r} holds a {type(content).__name__}"
        first = next(iter(files))
        return "" if first == STEM + self.record.suffix else f"{first!r} first"


def _writes(subject: Subject) -> None:
    for sample in samples():
        subject.files(sample)


def _judged_before(subject: Subject) -> None:
    """Nothing is left to ask: `Subject.files` judges this whenever something is written."""


def _something(subject: Subject) -> None:
    if all(subject.files(sample) is None for sample in samples()):
        broken("models of every sort", "every one is refused", "files of some of them")


def _repeats(subject: Subject) -> None:
    for sample in samples():
        first = subject.files(sample)
        if first is None:
            continue
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            path = Path(folder) / "copy.treekit"
            sample.model.save(path)
            equal = Sample(sample.what, load(path))
        for what, model in (("a second time", sample), ("of an equal model", equal)):
            again = subject.files(model)
            if again != first:
                broken(f"export(<{sample.what}>) {what}", _apart(first, again or {}), "equal bytes")


def _apart(first: Files, again: Files) -> str:
    """Where two writings of a model part."""
    for name, content in first.items():
        other = again.get(name)
        if other is None:
            return f"no file {name!r}"
        if other != content:
            pairs = zip(content, other, strict=False)
            length = min(len(content), len(other))
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), length)
            start = max(at - 20, 0)
            return f"{other[start : at + 20]!r} for {content[start : at + 20]!r} in {name!r}"
    return f"other files: {', '.join(again)}"


def _untouched(subject: Subject) -> None:
    for sample in samples():
        before = _state(sample.model)
        subject.files(sample)
        for name, value in _state(sample.model).items():
            if value != before[name]:
                broken(
                    f"export(<{sample.what}>)", f"its {name} is another", f"its {name} as it was"
                )


def _state(model: Model) -> dict[str, Any]:
    """All that a model is made of, by name, as values that compare."""
    state = {name: getattr(model, name) for name in ("schema", "missing", "unknown", "voting")}
    state |= copy.deepcopy({"settings": model.settings, "provenance": model.provenance})
    state |= {"units": model.units.tobytes(), "exponent": model.exponent}
    state["costs"] = None if model.costs is None else model.costs.tobytes()
    for number, tree in enumerate(model.trees):
        state |= {f"trees[{number}].{name}": getattr(tree, name).tobytes() for name in DTYPES}
    return state


def _deep(subject: Subject) -> None:
    subject.files(deepest(), DEEP)


def _hostile(subject: Subject) -> None:
    for sample in hostile_alone():
        subject.files(sample, HOSTILE)
    named, harmless = hostile()
    if _fault(subject, harmless, HOSTILE) is not None:
        return  # the names are not what is wrong
    if _fault(subject, named, HOSTILE) is not None:
        for sample in (*hostile_alone(), named):  # the first of them alone, if it is one
            _compare(subject, sample, HOSTILE)


def _differ(pairs: Iterable[Pair], subject: Subject) -> None:
    for what, *models in pairs:
        one, other = (subject.files(Sample(what, model)) for model in models)
        if one is not None and one == other:
            broken(
                f"two models that differ in {what}", "the same files", "other files, or a refusal"
            )


def _missing(subject: Subject) -> None:
    _differ(missing_pairs(), subject)


def _unseen(subject: Subject) -> None:
    _differ(unseen_pairs(), subject)


def _differences(subject: Subject) -> None:
    _differ(answer_pairs(), subject)


def _equal_bits(subject: Subject) -> None:
    if subject.execute is None:
        inapplicable("no way to run its files is given: check_exporter(..., run=...)")
    for sample in samples():
        _compare(subject, sample, WRITES_OR_REFUSES)


def _compare(subject: Subject, sample: Sample, law: Law) -> None:
    """Run what is written for a model."""
    found = _fault(subject, sample, law)
    if found is not None:
        row, got, wanted = found
        broken(f"export(<{sample.what}>), asked for {row}", got, wanted)


def _fault(subject: Subject, sample: Sample, law: Law) -> tuple[str, str, str] | None:
    """The first row that is answered otherwise; None if there is none, or nothing to run."""
    files = subject.files(sample, law)
    if files is None or subject.execute is None:
        return None
    return difference(sample.model, files, subject.execute)


EXPORTER_LAWS: tuple[tuple[Law, Test], ...] = (
    (WRITES_OR_REFUSES, _writes),
    (FILES, _judged_before),
    (SOMETHING, _something),
    (REPEATS, _repeats),
    (UNTOUCHED, _untouched),
    (DEEP, _deep),
    (MISSING, _missing),
    (UNSEEN, _unseen),
    (DIFFERENCES, _differences),
    (EQUAL_BITS, _equal_bits),
    (HOSTILE, _hostile),
)
