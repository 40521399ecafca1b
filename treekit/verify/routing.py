"""Routes of rows through models with fractional instances, oblique or surrogate splits.

`treekit.verify.probes` constructs rows for plain models, in which a node's
inputs are a product of one set a column.  For other models rows are searched
for instead (`treekit.verify.targeted_search`), and their coverage is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import compute_mass_bounds
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns, Split, concatenate_trees, make_node_tests

if TYPE_CHECKING:
    from treekit.rules.kernels import TreeWalk
    from treekit.verify.kernels.reachability import ModelCoverage, RoutingTables


Array = npt.NDArray[np.float64]


def has_accepted_rows(model: Model) -> bool:
    """Return whether the model has a prediction for any row.

    It has none if missing values are an error and a nominal column has no categories.
    """
    schema = model.schema
    return model.missing != "error" or bool(np.all(~schema.nominal | (schema.n_levels > 0)))


def is_plain(model: Model) -> bool:
    """Return whether every split tests a single feature, and no instance is fractional."""
    asks = any(len(t.term_feature) or len(t.surrogate_feature) for t in model.trees)
    return model.missing != "fractional" and not asks


@dataclass(frozen=True)
class RoutedModel:
    """A model in the form that `treekit.verify.kernels.reachability` takes.

    Attributes
    ----------
    model : Model
    tests : DerivedColumns
        Tests of every node.
    routes : RoutingTables
    roots : (trees + 1,) int64
    node_of_test : (tests,) int64
        Node of each test.
    """

    model: Model
    tests: DerivedColumns
    routes: RoutingTables
    roots: npt.NDArray[np.int64]
    node_of_test: npt.NDArray[np.int64]

    @property
    def is_float32(self) -> bool:
        """Whether numbers are float32."""
        return self.model.schema.dtype == "float32"

    @property
    def is_linear(self) -> npt.NDArray[np.bool_]:
        """(tests,) bool: whether a test compares a sum."""
        return self.tests.level_feature < 0

    @property
    def is_primary(self) -> npt.NDArray[np.bool_]:
        """(tests,) bool: whether a test is a node's primary test, not a surrogate."""
        own = np.zeros(len(self.node_of_test), dtype=np.bool_)
        own[self.tests.test_start[:-1]] = True
        # Conditions of rules are neither surrogates nor primary tests.
        own[self.routes.nodes["kind"][self.node_of_test] == Split.RULE] = False
        return own


def make_routed_model(model: Model) -> RoutedModel:
    """Concatenate the trees of a model and the tests of their nodes."""
    from treekit.verify.kernels.reachability import ROUTE_NODE_DTYPE as NODE
    from treekit.verify.kernels.reachability import TERM_DTYPE, TEST_DTYPE, RoutingTables

    nodes, roots = concatenate_trees(model.trees)
    tests = make_node_tests(model)
    units = np.zeros((nodes.n_nodes, model.schema.n_values), dtype=np.int64)
    units[nodes.kind == Split.LEAF] = model.units
    parent = [
        np.where(tree.parent < 0, -1, tree.parent + root)
        for tree, root in zip(model.trees, roots.tolist(), strict=False)
    ]
    shares = np.concatenate([compute_mass_bounds(tree) for tree in model.trees])
    routes = RoutingTables(
        nodes=_make_records(
            NODE,
            nodes,
            parent=np.concatenate(parent),
            asks=tests.column,
            share_start=shares[:, 0],
            share_end=shares[:, 1],
        ),
        tests=_make_records(TEST_DTYPE, tests),
        terms=_make_records(TERM_DTYPE, None, feature=tests.term_feature, weight=tests.term_weight),
        test_offsets=tests.test_start,
        term_offsets=tests.term_start,
        level_offsets=tests.level_start,
        level_branch=tests.level_branch,
        units=units,
        fractional=model.missing == "fractional",
        part_bits=model.part_bits,
    )
    owners = np.flatnonzero(tests.column >= 0)
    return RoutedModel(model, tests, routes, roots, np.repeat(owners, np.diff(tests.test_start)))


def _make_records(
    dtype: npt.DTypeLike, source: object, **fields: npt.NDArray[np.generic]
) -> npt.NDArray[np.void]:
    """Make an array of records: each field from `fields`, else the attribute of `source`."""
    names = np.dtype(dtype).names or ()
    columns = [fields[name] if name in fields else getattr(source, name) for name in names]
    records = np.zeros(len(columns[0]), dtype=dtype)
    for name, column in zip(names, columns, strict=True):
        records[name] = column
    return records


def make_extended_walk(model: Model, nodes: Any, n_extra: int, depth: int) -> TreeWalk:
    """Prepare a walk over nodes whose features may be `n_extra` columns after the model's."""
    from treekit.rules.kernels import make_walk

    schema, extra = model.schema, np.zeros(n_extra, dtype=np.int64)
    bar = np.append(np.full(schema.n_features, int(model.missing == "error")), extra)
    nominal = np.append(schema.nominal, extra.astype(np.bool_))
    return make_walk(nodes, np.append(schema.n_levels, extra), nominal, bar, depth + 1)


def make_matrix(model: Model, rows: Array) -> Array:
    """Return rows as the trees read them: rounded, and codes without a category as missing."""
    with np.errstate(over="ignore", under="ignore"):
        cells = rows.astype(model.schema.dtype).astype(np.float64)
    nominal = model.schema.nominal
    codes = cells[:, nominal]
    is_known = (codes >= 0) & (codes < model.schema.n_levels[nominal]) & (codes == np.floor(codes))
    cells[:, nominal] = np.where(is_known, codes, np.nan)
    return cells


def make_empty_coverage(of: RoutedModel) -> ModelCoverage:
    """Return the initial state for `route_rows`."""
    from treekit.verify.kernels.reachability import ModelCoverage

    n, n_tests = len(of.routes.nodes), len(of.node_of_test)
    return ModelCoverage(
        node=np.full(n, -1),
        side=np.full((n_tests, 2), -1),
        nearest=np.full((n_tests, 2), np.nan),
        level=np.full(len(of.tests.level_branch), -1),
        unknown=np.full(n, -1),
    )
