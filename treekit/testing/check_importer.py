"""Laws of an importer, tested on foreign objects, on its sources, and on the models read."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import TreekitError
from treekit.model.fixed_point import scale_units
from treekit.model.model import Model, hash_model, make_model
from treekit.model.model_file import load
from treekit.model.scoring import predict_from_sums, sum_leaf_values
from treekit.testing.example_models import make_example_probes
from treekit.testing.laws import Laws, Subject, blame_error, break_law, format_exception, skip_law
from treekit.testing.report import Law
from treekit.verify.probe_values import decode_cells

PredictFunction = Callable[[Any, Schema, Sequence[Sequence[float | str | None]]], Sequence[Any]]

# ---------------------------------------------------------------- importer under test

FOREIGN = Law(
    "foreign-things-are-passed-over",
    "`recognises` returns False, and does not raise, for objects of other kinds.",
    "`recognises`: test the type first, then the name of the file; return a bool",
)
OWN = Law(
    "own-sources-are-recognised",
    "`recognises` returns True for a source of its kind.",
    "`recognises`, or the given sources",
)
READS = Law(
    "reads-a-model",
    "`read` returns a treekit.Model that passes all checks of a model and can be saved.",
    "how it makes trees: `treekit.model.builder`, then `make_model`, which checks them",
)


@dataclass(frozen=True)
class ImporterSubject(Subject):
    """An importer, and the sources that it is tested on.

    Attributes
    ----------
    sources : sequence
        Objects or paths that it reads.
    predict : callable or None
    missing : bool
        See `treekit.testing.check_importer`.
    """

    sources: Sequence[Any] = ()
    predict: PredictFunction | None = None
    missing: bool = True

    def check_recognises(self, source: Any, law: Law, expected: bool) -> None:
        """Check the result of `recognises` for a source; any other than `expected` breaks `law`."""
        call = f"recognises({format_source(source)})"
        try:
            answer: Any = self.record.recognises(source)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            blame_error(call, error, expected, law)
        if not isinstance(answer, bool | np.bool_) or bool(answer) != expected:
            break_law(call, repr(answer)[:80], expected, law=law)

    def read(self, source: Any, law: Law, damage: str = "") -> Model | None:
        """Read an object or a file; return a checked model, or None for an error of treekit.

        Any other error, and a faulty model, break `law`.
        """
        call = f"read({format_source(source)}){damage}"
        try:
            model = self.record.read(source, **self.settings)
        except TreekitError:
            return None
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            blame_error(call, error, "a model, or an error of treekit", law)
        if problem := find_flaw(model):
            break_law(call, problem, "a treekit.Model, well formed", law=law)
        checked: Model = model
        return checked

    def read_own(self, source: Any) -> Model:
        """Read one of its own sources; return the checked model."""
        model = self.read(source, READS)
        if model is None:
            break_law(f"read({format_source(source)})", "an error of treekit", "a model", law=READS)
        return model

    def iter_sources(self) -> Iterator[Any]:
        """Yield the sources; end a test that needs them if there are none."""
        if not self.sources:
            skip_law("it needs sources: check_importer(..., sources=[...])")
        yield from self.sources


def find_flaw(model: Any) -> str:
    """Describe a fault of a model; empty if there is none."""
    if not isinstance(model, Model):
        return f"a {type(model).__name__}"
    try:
        policies = ("missing", "unknown", "voting", "costs", "combine", "link")
        again = make_model(
            model.schema, model.trees, **{name: getattr(model, name) for name in policies}
        )
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            model.save(Path(folder) / "m.treekit")
            stored = load(Path(folder) / "m.treekit")
    except Exception as error:  # noqa: BLE001 - a plugin's model may fail in any way
        return format_exception(error)
    if not np.array_equal(again.units, model.units) or again.exponent != model.exponent:
        return "a model whose fixed-point units differ from those of make_model"
    return "" if hash_model(stored) == hash_model(model) else "a model that changes when saved"


def format_source(source: Any) -> str:
    """Format a source for an example."""
    return f"Path({source.name!r:.80})" if isinstance(source, Path) else f"{source!r:.80}"


# ---------------------------------------------------------------- laws

REPEATS = Law(
    "same-source-same-model",
    "Reading a source twice gives equal models.",
    "the order of a set or of a folder, random numbers, the time",
)
UNTOUCHED = Law(
    "source-is-not-touched",
    "Neither `recognises` nor `read` changes the source.",
    "assignments to parts of the source; files opened for writing",
)
EQUAL = Law(
    "predictions-are-equal",
    "The model gives the prediction of its source for every row.",
    "the row: `<` or `<=`, the side of a missing value, the order of the classes",
)
REFUSES = Law(
    "read-refuses-by-name",
    "`read` rejects objects of other kinds by an error of treekit, such as ModelError.",
    "the exception: check each part before it is used, and raise ModelError",
)
CORRUPT = Law(
    "corrupt-files-are-refused",
    "A damaged file is rejected by an error of treekit, or read as a well-formed model.",
    "the exception: check each part before it is used, and raise ModelError",
)


def _check_foreign(subject: ImporterSubject) -> None:
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        for thing in (*FOREIGN_OBJECTS, *iter_foreign_paths(Path(folder))):
            subject.check_recognises(thing, FOREIGN, expected=False)
        for source in subject.sources:
            if isinstance(source, Path):
                for path in iter_absent_paths(Path(folder), source.suffix):
                    subject.check_recognises(path, FOREIGN, expected=False)


def _check_own(subject: ImporterSubject) -> None:
    for source in subject.iter_sources():
        subject.check_recognises(source, OWN, expected=True)


def _check_reads(subject: ImporterSubject) -> None:
    for source in subject.iter_sources():
        one, two = subject.read_own(source), subject.read_own(source)
        if hash_model(one) != hash_model(two):
            call = f"read({format_source(source)}) twice"
            break_law(call, f"{one!r}, then {two!r}", "equal models", law=REPEATS)


def _check_untouched(subject: ImporterSubject) -> None:
    for source in subject.iter_sources():
        before = _hash_source(source)
        if before is None:
            skip_law(f"{format_source(source)} cannot be pickled to detect changes")
        subject.check_recognises(source, OWN, expected=True)
        subject.read_own(source)
        if _hash_source(source) != before:
            call = f"read({format_source(source)})"
            break_law(call, "the source was changed", "the source unchanged")


def _hash_source(source: Any) -> str | None:
    """Return the digest of a file, a folder or an object's pickle; None if it has no pickle."""
    if isinstance(source, Path):
        files = sorted(source.rglob("*")) if source.is_dir() else [source]
        content = [(str(path), path.read_bytes()) for path in files if path.is_file()]
        siblings = sorted(path.name for path in source.parent.iterdir())
        return hashlib.sha256(repr((content, siblings)).encode()).hexdigest()
    try:
        return hashlib.sha256(pickle.dumps(source)).hexdigest()
    except Exception:  # noqa: BLE001 - pickling an object may raise anything
        return None


def _check_equal(subject: ImporterSubject) -> None:
    for source in subject.iter_sources():
        if subject.predict is None:
            skip_law("it needs the source's predictions: check_importer(..., predict=...)")
        model = subject.read_own(source)
        probes = make_example_probes(model).rows
        rows = [row for row in probes if subject.missing or _is_known(model, row)]
        cells = [decode_cells(model.schema, row) for row in rows]
        theirs = list(subject.predict(source, model.schema, cells))
        if len(theirs) != len(rows):
            call = f"predict({format_source(source)}, ...)"
            break_law(call, f"{len(theirs)} predictions", f"{len(rows)} predictions")
        stacked = np.array(rows).reshape(-1, probes.shape[1])
        ours = predict_from_sums(model, sum_leaf_values(model, stacked))
        for row, expected, got in zip(cells, theirs, ours, strict=True):
            if not _is_same_prediction(model, expected, got):
                break_law(f"read({format_source(source)}), run on the row {row}", got, expected)


def _is_known(model: Model, row: npt.NDArray[np.float64]) -> bool:
    """Whether no cell is missing or unseen."""
    cells = zip(model.schema.columns, row.tolist(), strict=True)
    return all(x == x and (c.kind == "numeric" or 0 <= x < len(c.levels)) for c, x in cells)


def _is_same_prediction(model: Model, theirs: Any, ours: Any) -> bool:
    """Whether labels are equal, or numbers up to the fixed-point units of the model."""
    if model.schema.task == "classification":
        return bool(np.array_equal(theirs, ours))
    step = scale_units(0.5, model.exponent) + 4.0 * np.spacing(np.abs(ours))
    return bool(np.all(np.abs(np.asarray(theirs, dtype=np.float64) - ours) <= step))


def _check_refuses(subject: ImporterSubject) -> None:
    for thing in FOREIGN_OBJECTS[:-1]:  # without `_RaisingObject`, which raises for any access
        if answer := subject.read(thing, REFUSES):
            break_law(f"read({format_source(thing)})", f"{answer!r:.80}", "an error of treekit")


def _check_corrupt(subject: ImporterSubject) -> None:
    files = [s for s in subject.sources if isinstance(s, Path) and s.is_file()]
    if not files:
        skip_law("none of the sources is a file")
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        for source in files:
            place = Path(folder) / source.name
            for damage, content in iter_damaged(source.read_bytes()):
                place.write_bytes(content)
                subject.read(place, CORRUPT, f", {damage}")


IMPORTER_LAWS: Laws = (
    (_check_untouched, UNTOUCHED),
    (_check_foreign, FOREIGN),
    (_check_refuses, REFUSES),
    (_check_own, OWN),
    (_check_reads, READS, REPEATS),
    (_check_corrupt, CORRUPT),
    (_check_equal, EQUAL),
)


# ---------------------------------------------------------------- foreign objects
# Objects, paths and damaged files that no importer may accept or fail on.


class _RaisingObject:
    """An object that raises for any attribute, comparison or truth test."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError(
            f"attribute {name!r} of an object of unknown type was accessed; test its type first"
        )

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("an object of unknown type was compared; test its type first")

    def __bool__(self) -> bool:
        raise RuntimeError("an object of unknown type was used as a Boolean; test its type first")

    __hash__ = object.__hash__


FOREIGN_OBJECTS: tuple[Any, ...] = (
    *(None, 0, -1.5, True, "", "model", b"model", (), [], {}, {"tree": []}, object(), object),
    *(print, sys, np.zeros(3), np.zeros((2, 2)), SimpleNamespace(tree_=None), _RaisingObject()),
)
"""Objects that are not models of any library."""


def iter_foreign_paths(folder: Path) -> Iterator[Path]:
    """Yield files of an unknown kind, created in `folder`, and paths that are not files."""
    for name in ("model.unheard-of", "model", "\u202e.x", "a\nb", "'; ls", "%s{}"):
        (folder / name).write_bytes(b"\x00\x01 no model \xff" * 3)
        yield folder / name
    yield folder
    yield Path(os.devnull)
    yield from iter_absent_paths(folder, ".unheard-of")


def iter_absent_paths(folder: Path, suffix: str) -> Iterator[Path]:
    """Yield paths with this ending that do not exist, some of which are invalid."""
    for name in ("absent", "nul\0", "half \udc80", "long" * 1000, "../absent"):
        yield folder / f"{name}{suffix}"


def iter_damaged(content: bytes, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield a file's content with various kinds of damage, each with a description."""
    rng = np.random.default_rng(seed)
    size = len(content)
    yield "emptied", b""
    for share in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
        yield f"cut after {int(size * share)} bytes", content[: int(size * share)]
    yield "without the last byte", content[:-1]
    yield "without the first byte", content[1:]
    yield "replaced by another file", b"\x00\x01 no model \xff" * 20
    yield "its content twice", content + content
    yield "with binary bytes in front", b"\xff\xfe\x00" + content
    lines = content.splitlines(keepends=True)
    for at in rng.integers(len(lines), size=min(len(lines), 12)) if len(lines) > 1 else ():
        yield f"without line {at + 1}", b"".join(lines[:at] + lines[at + 1 :])
    for number in range(40 if size else 0):
        at, other = int(rng.integers(size)), int(rng.integers(256))
        if number % 2:  # another digit, letter or sign is harder to detect
            other = ord("0129-.eE<>{}[]:,\"'nNaA x"[other % 24])
        yield f"byte {at} set to {other}", content[:at] + bytes([other]) + content[at + 1 :]
