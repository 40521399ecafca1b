"""Running what an exporter wrote: by its author's function, or as `treekit.verify` does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.model.model import Model
from treekit.testing.calls import said_by
from treekit.testing.rows import probe_rows
from treekit.verify.answers import REFUSED, Answers, differing, expected, label_codes, said
from treekit.verify.probe_values import cells_of
from treekit.verify.run_artifact import runners

__all__ = ["Execute", "Run", "builtin_run", "by_function", "difference"]

Run = Callable[[Path, Schema, Sequence[Sequence[float | str | None]]], Sequence[Any]]
"""``run(path, schema, rows)``: an answer a row, see `treekit.testing.check_exporter`."""

Execute = Callable[[Path, Schema, npt.NDArray[np.float64]], Iterator[tuple[str, Answers]]]
"""The same over rows of numbers and codes, as `treekit.verify` has it: ways and answers."""


def builtin_run(suffix: str) -> Execute | None:
    """How treekit itself runs files of this ending; None if it does not."""
    return next((runner.run for runner in runners() if runner.suffix == suffix), None)


def by_function(run: Run) -> Execute:
    """Let an author's function answer rows of numbers and codes."""

    def execute(
        path: Path, schema: Schema, rows: npt.NDArray[np.float64]
    ) -> Iterator[tuple[str, Answers]]:
        told = list(run(path, schema, [cells_of(schema, row) for row in rows]))
        if len(told) != len(rows):
            raise VerificationError(f"run gave {len(told)} answers to {len(rows)} rows")
        yield "run", _answers(schema, told)

    return execute


def _answers(schema: Schema, told: list[Any]) -> Answers:
    """Answers of the form ``(labels, numbers)``, None where a row is refused."""
    n_labels = len(schema.outputs) if schema.task == "classification" else 0
    label = np.zeros((len(told), len(schema.outputs)), dtype=np.int64)
    number = np.zeros((len(told), schema.n_values))
    for i, answer in enumerate(told):
        if answer is None:
            label[i] = REFUSED
            continue
        try:
            labels, numbers = answer
            number[i] = numbers
            if len(labels) != n_labels:
                raise ValueError(f"{len(labels)} labels")
        except (TypeError, ValueError) as error:
            raise VerificationError(
                f"run answered {answer!r} ({error}); an answer is a pair of {n_labels} labels and "
                f"{schema.n_values} numbers, or None where the row is refused"
            ) from error
        for k in range(n_labels):
            label[i, k] = label_codes(schema.outputs[k], [labels[k]])[0]
    return Answers(label, number)


def difference(
    model: Model, files: Mapping[str, bytes], execute: Execute
) -> tuple[str, str, str] | None:
    """The first row that files answer otherwise than their model: the row, got, expected.

    None if there is none.  Files that cannot be run are a difference, too.
    """
    rows, n_refused = probe_rows(model)
    wanted = expected(model, rows, n_refused)
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        for name, content in files.items():
            place = Path(folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        main = Path(folder) / next(iter(files))
        try:
            for _, given in execute(main, model.schema, rows):
                n = len(given.label)
                part = Answers(wanted.label[:n], wanted.number[:n])
                found = differing(part, given)
                if len(found):
                    row = int(found[0])
                    cells = dict(
                        zip(model.schema.names, cells_of(model.schema, rows[row]), strict=True)
                    )
                    return (
                        f"the row {cells}",
                        said(model.schema, given, row),
                        said(model.schema, part, row),
                    )
        except Exception as error:  # noqa: BLE001 - an author's function, and what it runs
            return "rows of all sorts", said_by(error), "answers"
    return None
