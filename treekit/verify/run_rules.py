"""Execution of rule text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.errors import ModelFileError, VerificationError
from treekit.rules import parse_rules
from treekit.verify.answers import Answers, answers_from_sums
from treekit.verify.runtime import Job, Runtime

__all__ = ["RULES_RUNTIMES", "run_rules"]


def run_rules(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
    """Read rule text and execute it, without the model."""
    path, schema = job.path, job.schema
    try:
        rules = parse_rules(path.read_bytes().decode())
    except (ModelFileError, UnicodeDecodeError) as error:
        raise VerificationError(f"{path.name!r} cannot be read: {error}") from error
    if rules.rounding is not None:
        raise VerificationError(
            f"{path.name!r} has thresholds shortened to {rules.rounding.digits} digits, which are "
            "exact for the rows of one table only; write the rules without --digits"
        )
    if (rules.schema.columns, rules.schema.outputs) != (schema.columns, schema.outputs):
        raise VerificationError(f"{path.name!r} differs from the model in columns or classes")
    answered = ~rules.refused(rows)
    yield "rules", answers_from_sums(rules, rules.sums(rows[answered]), answered)


RULES_RUNTIMES = (Runtime("treekit", run_rules, lambda: __version__),)
