"""An importer under test: what it is asked, and what a well-formed model is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treekit.contracts import Importer
from treekit.model.model import Model, make_model
from treekit.model.model_file import load
from treekit.testing.calls import look_at, said_by
from treekit.testing.laws import broken, inapplicable
from treekit.testing.report import Law
from treekit.verify.report import model_sha256

__all__ = ["FOREIGN", "OWN", "READS", "Subject", "flaw", "shown"]

FOREIGN = Law(
    "foreign-things-are-passed-over",
    "`recognises` answers False, and raises nothing, for what is not of its kind.",
    "`recognises`: test the type first, then the name of the file; return a bool",
)
OWN = Law(
    "own-sources-are-recognised",
    "`recognises` answers True for a source of its kind.",
    "`recognises`, or the sources that were given",
)
READS = Law(
    "reads-a-model",
    "`read` returns a treekit.Model that passes the model's own checks and can be stored.",
    "the trees it makes: `treekit.model.builder`, then `make_model`, which checks them",
)


@dataclass(frozen=True)
class Subject:
    """An importer under its settings, and what it is tried on.

    Attributes
    ----------
    record : Importer
    settings : dict
    sources : sequence
        Objects or paths that it reads.
    predict : callable or None
    missing : bool
        See `treekit.testing.check_importer`.
    """

    record: Importer
    settings: dict[str, Any]
    sources: Sequence[Any]
    predict: Callable[..., Any] | None = None
    missing: bool = True

    def recognises(self, source: Any, law: Law, expected: bool) -> None:
        """Ask whether it takes a source; another answer breaks `law`."""
        call = f"recognises({shown(source)})"
        try:
            answer: Any = self.record.recognises(source)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            broken(call, said_by(error), expected, law=law.name, look=look_at(error, law))
        if not isinstance(answer, bool | np.bool_) or bool(answer) != expected:
            broken(call, repr(answer)[:80], expected, law=law.name)

    def read(self, source: Any) -> Model:
        """The model of one of its own sources, well formed."""
        call = f"read({shown(source)})"
        try:
            model = self.record.read(source, **self.settings)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            broken(call, said_by(error), "a model", law=READS.name, look=look_at(error, READS))
        problem = flaw(model)
        if problem:
            broken(call, problem, "a treekit.Model, well formed", law=READS.name)
        checked: Model = model
        return checked

    def need_sources(self) -> None:
        """Only judge further if there is anything to read."""
        if not self.sources:
            inapplicable("no source is given: check_importer(..., sources=[...])")


def flaw(model: Any) -> str:
    """What is wrong with a model, or nothing."""
    if not isinstance(model, Model):
        return f"a {type(model).__name__}"
    try:
        again = make_model(
            model.schema,
            model.trees,
            missing=model.missing,
            unknown=model.unknown,
            voting=model.voting,
            costs=model.costs,
            combine=model.combine,
            link=model.link,
        )
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            model.save(Path(folder) / "m.treekit")
            stored = load(Path(folder) / "m.treekit")
    except Exception as error:  # noqa: BLE001 - built by a stranger out of anything
        return said_by(error)
    if not np.array_equal(again.units, model.units) or again.exponent != model.exponent:
        return "a model whose units are not those that make_model gives its leaves"
    return "" if model_sha256(stored) == model_sha256(model) else "a model that its file changes"


def shown(source: Any) -> str:
    """A source as an example shows it."""
    return f"Path({source.name!r:.80})" if isinstance(source, Path) else f"{source!r:.80}"
