"""Drawing short lists from a forest, as often as a choice of their size needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.model.model import Model
from treekit.rules.learn.given import Weighed
from treekit.rules.learn.quantiles import Cuts
from treekit.rules.learn.said import added_list, mean_list
from treekit.rules.learn.stable import Frequent, drawn, frequent_rules, never_missing
from treekit.rules.rule_list import RuleList

__all__ = ["Drawing"]


@dataclass(eq=False)
class Drawing:
    """What lists of one call have in common, whatever rows they are drawn from.

    Attributes
    ----------
    dataset : Dataset
    given : Model, optional
        The forest that there is; None: forests are grown.
    cuts : Cuts
        Of all rows: they know nothing of the target.
    depth : int
    above : float
        Rules that this part of the trees has, or less, are left out.
    settings : dict
        Of forests that are grown.
    """

    dataset: Dataset
    given: Model | None
    cuts: Cuts
    depth: int
    above: float
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        self.complete = never_missing(self.dataset)
        self.coded = self.cuts.coded(self.dataset)
        self.forest = self.on(None)

    def on(self, rows: npt.NDArray[np.int64] | None) -> Model:
        """The forest given, or one of shallow trees on some of the rows, split at the cuts."""
        if self.given is not None:
            return self.given
        from treekit.training import fit

        usual = {
            "ensemble": "forest", "max_depth": self.depth, "oob": False,
            "max_features": max(self.dataset.schema.n_features // 3, 1),
            # One level against the rest returns in many trees; sets of levels vary.
            "nominal_splits": "one_vs_rest",
        }  # fmt: skip
        part = self.coded if rows is None else self.coded.take(rows)
        return self.cuts.decoded(fit(part, usual | self.settings).model)

    def frequent(self, forest: Model, trees: slice = slice(None)) -> Frequent:
        """The forest's paths, counted."""
        cuts = None if self.given is None else self.cuts
        return frequent_rules(forest, self.depth, cuts, self.complete, trees)

    def listed(
        self, found: Frequent, rows: Weighed, size: int
    ) -> tuple[RuleList, npt.NDArray[np.float64]]:
        """The list of at most so many rules, and their frequencies."""
        chosen, met, frequency = drawn(found, rows, size, self.above)
        if self.dataset.schema.task == "classification":
            return mean_list(chosen, met, rows), frequency
        made, kept = added_list(chosen, met, rows)
        return made, frequency[kept]
