"""Models whose rows may divide or be asked sums and surrogates, and the routes of rows in them.

`treekit.verify.probes` constructs rows for plain models, in which a node's
inputs are a product of one set a column.  Here they are not; rows are searched
for instead (`treekit.verify.targeted_search`), and what they reach is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.model.concatenated import join
from treekit.model.derived_features import DerivedColumns, asked
from treekit.model.fixed_point import mass_bounds
from treekit.model.model import Model
from treekit.model.tree import Split, Tree

if TYPE_CHECKING:
    from treekit.kernels.reachability import Routes, Touched

__all__ = [
    "Routed",
    "accepts_any",
    "is_plain",
    "matrix_of",
    "nothing_touched",
    "route_rows",
    "routed",
    "trees_of",
]

Array = npt.NDArray[np.float64]


def accepts_any(model: Model) -> bool:
    """Whether there is a row that the policies accept.

    None if missing values are an error and a column has no levels.
    """
    schema = model.schema
    return model.missing != "error" or bool(np.all(~schema.nominal | (schema.n_levels > 0)))


def is_plain(model: Model) -> bool:
    """Whether every node asks one column, and no row divides."""
    asks = any(len(t.term_feature) or len(t.surrogate_feature) for t in model.trees)
    return model.missing != "fractional" and not asks


@dataclass(frozen=True)
class Routed:
    """A model as `treekit.kernels.reachability` wants it.

    Attributes
    ----------
    model : Model
    tests : DerivedColumns
        What every node asks.
    routes : Routes
    roots : (trees + 1,) int64
    owner : (tests,) int64
        The node that asks each test.
    """

    model: Model
    tests: DerivedColumns
    routes: Routes
    roots: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]

    @property
    def narrow(self) -> bool:
        """Whether numbers are float32."""
        return self.model.schema.dtype == "float32"

    @property
    def linear(self) -> npt.NDArray[np.bool_]:
        """(tests,) bool: which tests compare sums."""
        return self.tests.level_feature < 0

    @property
    def first(self) -> npt.NDArray[np.bool_]:
        """(tests,) bool: which tests are a node's own, not surrogates."""
        own = np.zeros(len(self.owner), dtype=np.bool_)
        own[self.tests.test_start[:-1]] = True
        # Conditions of rules are nobody's stand-ins, and yet no tests of a node's own.
        own[self.routes.nodes["kind"][self.owner] == Split.RULE] = False
        return own


def routed(model: Model) -> Routed:
    """Join the trees of a model and what their nodes ask."""
    from treekit.kernels.reachability import ROUTE_NODE as NODE
    from treekit.kernels.reachability import TERM, TEST, Routes

    nodes, roots = join(model.trees)
    tests = asked(model)
    units = np.zeros((nodes.n_nodes, model.schema.n_values), dtype=np.int64)
    units[nodes.kind == Split.LEAF] = model.units
    parent = [
        np.where(tree.parent < 0, -1, tree.parent + root) for tree, root in trees_of(model, roots)
    ]
    shares = np.concatenate([mass_bounds(tree) for tree in model.trees])
    routes = Routes(
        nodes=_records(
            NODE,
            nodes,
            parent=np.concatenate(parent),
            asks=tests.column,
            share_start=shares[:, 0],
            share_end=shares[:, 1],
        ),
        tests=_records(TEST, tests),
        terms=_records(TERM, None, feature=tests.term_feature, weight=tests.term_weight),
        test_start=tests.test_start,
        term_start=tests.term_start,
        level_start=tests.level_start,
        level_branch=tests.level_branch,
        units=units,
        divides=model.missing == "fractional",
    )
    owners = np.flatnonzero(tests.column >= 0)
    return Routed(model, tests, routes, roots, np.repeat(owners, np.diff(tests.test_start)))


def _records(
    dtype: npt.DTypeLike, source: object, **fields: npt.NDArray[np.generic]
) -> npt.NDArray[np.void]:
    """An array of records: each field as given, else of that name in `source`."""
    names = np.dtype(dtype).names or ()
    columns = [fields[name] if name in fields else getattr(source, name) for name in names]
    made = np.zeros(len(columns[0]), dtype=dtype)
    for name, column in zip(names, columns, strict=True):
        made[name] = column
    return made


def trees_of(model: Model, roots: npt.NDArray[np.int64]) -> list[tuple[Tree, int]]:
    """The trees of a model and the number of each one's root."""
    return list(zip(model.trees, roots[:-1].tolist(), strict=True))


def matrix_of(model: Model, rows: Array) -> Array:
    """Rows as the trees see them: rounded, what is no code of a level missing."""
    with np.errstate(over="ignore", under="ignore"):
        cells = rows.astype(model.schema.dtype).astype(np.float64)
    nominal = model.schema.nominal
    codes = cells[:, nominal]
    coded = (codes >= 0) & (codes < model.schema.n_levels[nominal]) & (codes == np.floor(codes))
    cells[:, nominal] = np.where(coded, codes, np.nan)
    return cells


def nothing_touched(of: Routed) -> Touched:
    """The start of `route_rows`."""
    from treekit.kernels.reachability import Touched

    n, n_tests = len(of.routes.nodes), len(of.owner)
    return Touched(
        node=np.full(n, -1),
        side=np.full((n_tests, 2), -1),
        nearest=np.full((n_tests, 2), np.nan),
        level=np.full(len(of.tests.level_branch), -1),
        unknown=np.full(n, -1),
    )


def route_rows(of: Routed, cells: Array, first: int, touched: Touched) -> None:
    """Note what rows (as of `matrix_of`), numbered from `first`, touch."""
    from treekit.kernels.reachability import follow

    follow(of.routes, of.roots, cells, first, touched)
