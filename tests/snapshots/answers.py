"""Rows for the stored models, and the models' exact predictions.

``models/NAME.npz`` contains the rows and all predictions; ``models/answers.txt`` contains a few
results of `Model.predict` as text, for review.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.extreme_rows import extreme_rows, refused, wanted
from tests.reference.models import text_row
from tests.snapshots import FOLDER
from treekit.model.model import Model
from treekit.model.scoring import leaf_indices

__all__ = [
    "ANSWERS",
    "MODELS_FOLDER",
    "answer_rows",
    "differences",
    "read_answers",
    "read_sections",
    "rows_for",
    "shown_answers",
    "write_answers",
    "write_sections",
]

MODELS_FOLDER = FOLDER / "models"
ANSWERS = MODELS_FOLDER / "answers.txt"

_SHOWN = 3
"""Number of rows in ``answers.txt`` for a model, besides the row of missing values."""

Rows = npt.NDArray[np.float64]
Answers = dict[str, npt.NDArray[Any]]


def rows_for(model: Model) -> Rows:
    """Return distinct edge-case rows of a model as (rows, features) float64."""
    rows = extreme_rows(model, most=16)
    return np.stack([*{row.tobytes(): row for row in rows}.values()])  # by bytes: keep -0.0 and 0.0


def answer_rows(model: Model, rows: Rows) -> Answers:
    """Return the predictions of a model for encoded rows.

    Returns
    -------
    dict
        ``labels`` (rows, outputs), class indices, 0 for numbers, -1 for rejected rows;
        ``numbers`` (rows, values), probabilities or predicted numbers; ``leaves`` (rows, trees),
        the leaf node in each tree, -1 for rejected rows.
    """
    answers = wanted(model, rows)
    answered = ~refused(model, rows)
    leaves = np.full((len(rows), model.n_trees), -1, dtype=np.int32)
    leaves[answered] = leaf_indices(model, rows[answered])
    return {"labels": answers.label, "numbers": answers.number, "leaves": leaves}


def differences(model: Model, rows: Rows, stored: Mapping[str, npt.NDArray[Any]]) -> list[str]:
    """List differences from the stored predictions, up to three rows of each kind."""
    answers = answer_rows(model, rows)
    found = []
    for kind, now in answers.items():
        before = stored[kind]
        if before.shape != now.shape:
            found.append(f"{kind}: shape {now.shape}, stored {before.shape}")
            continue
        other = (_bits(before) != _bits(now)).any(axis=1)
        found += [
            f"{kind} of row {row} {rows[row].tolist()}: {now[row].tolist()}, stored "
            f"{before[row].tolist()}"
            for row in np.flatnonzero(other)[:3]
        ]
        if other.sum() > 3:
            found.append(f"{kind}: {other.sum()} of {len(rows)} rows differ")
    return found


def shown_answers(model: Model, rows: Rows) -> list[str]:
    """Return results of `Model.predict` and `Model.predict_proba` for some rows, one line each.

    Categories are passed as text; a code outside the vocabulary becomes an unseen category.
    """
    answered = np.flatnonzero(~refused(model, rows))
    finite = answered[np.isfinite(rows[answered]).any(axis=1)]
    at = np.linspace(0, len(finite) - 1, _SHOWN).astype(int) if len(finite) else []
    all_missing = np.full((1, model.schema.n_features), np.nan)
    return [_shown(model, row) for row in [*all_missing, *rows[finite[at]]]]


def write_answers(path: Path, model: Model) -> Rows:
    """Make rows and store them with the model's predictions."""
    rows = rows_for(model)
    np.savez_compressed(path, allow_pickle=False, rows=rows, **answer_rows(model, rows))
    return rows


def read_answers(path: Path) -> tuple[Rows, Answers]:
    """Read the stored rows and predictions."""
    with np.load(path, allow_pickle=False) as file:
        stored = {name: file[name] for name in file.files}
    return stored.pop("rows"), stored


def read_sections(path: Path) -> dict[str, list[str]]:
    """Read a file of sections, each a name followed by indented lines."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            lines.append(line[2:])
        elif line and not line.startswith("#"):
            sections[line] = lines = []
    return sections


def write_sections(head: str, sections: Mapping[str, list[str]]) -> str:
    """Format sections for `read_sections`, after a head of comment lines."""
    text = "".join(f"# {line}\n" for line in head.splitlines())
    for name, lines in sections.items():
        text += f"\n{name}\n" + "".join(f"  {line}\n" for line in lines)
    return text


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def _shown(model: Model, row: Rows) -> str:
    cells = text_row(model.schema, row.tolist())
    if refused(model, row[None]).any():
        return f"{_shortened(cells)} -> refused"
    table = {name: [cell] for name, cell in zip(model.schema.names, cells, strict=True)}
    answer = model.predict(table)[0]
    words = ascii(answer.tolist() if isinstance(answer, np.ndarray | np.generic) else answer)
    if model.schema.task == "classification":
        shares = model.predict_proba(table)
        each = shares if isinstance(shares, list) else [shares]
        words += " " + " ".join(ascii(own[0].tolist()) for own in each)
    return f"{_shortened(cells)} -> {_shortened(words)}"


def _shortened(what: Any) -> str:
    """Truncate a text of over 200 characters, and append the digest of the full text."""
    text = what if isinstance(what, str) else ascii(what)
    if len(text) <= 200:
        return text
    return f"{text[:160]}... sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"
