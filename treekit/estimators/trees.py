"""Single trees as scikit-learn estimators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn.tree
from sklearn.base import clone
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from treekit.data.dataset import Dataset
from treekit.errors import SettingError
from treekit.estimators.base import (
    ClassifierBase,
    EstimatorBase,
    RegressorBase,
    compute_class_impurity,
    compute_node_statistics,
    compute_pruning_path,
    copy_fitted_attributes,
)
from treekit.estimators.tree_arrays import TreeArrays, make_path_matrix, make_tree_arrays
from treekit.training import Fitted
from treekit.training.later import Later


class TreeBase(EstimatorBase):
    """Base class of single trees."""

    _ensemble = "tree"
    _statistics: Later[tuple[Any, Any] | None] | None = None

    def get_depth(self) -> int:
        """Return the number of edges from the root to the deepest leaf."""
        check_is_fitted(self, "model_")
        return self.model_.depth

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        check_is_fitted(self, "model_")
        return self.model_.n_leaves

    def decision_path(self, X: Any) -> Any:
        """Return a CSR matrix (rows, nodes): 1 where the row passes through the node."""
        leaf = self.apply(X)
        return make_path_matrix(self.model_.trees[0].parent, leaf)

    def cost_complexity_pruning_path(
        self, X: Any = None, y: Any = None, sample_weight: Any = None
    ) -> Bunch:
        """Compute the effective alphas of cost-complexity pruning, and the impurities left.

        Parameters
        ----------
        X, y : table and target, optional
            Data to grow the tree from.  By default the fitted tree is used, which takes
            a small fraction of a fit.

        Returns
        -------
        Bunch
            ``ccp_alphas`` and ``impurities``, (pruning steps + 1,) float64 each,
            ascending; each of the alphas is a valid `ccp_alpha`.

        Raises
        ------
        SettingError
            If the fitted tree was pruned, or its impurities are unknown.
        """
        unpruned = self
        if X is not None or y is not None:
            unpruned = clone(self).set_params(pruner="none", pruner_settings=None, ccp_alpha=0.0)
            unpruned.fit(X, y, sample_weight)
        check_is_fitted(unpruned, "model_")
        pruner = unpruned.model_.settings.get("pruner")
        if pruner not in (None, "none"):
            raise SettingError(
                f"the fitted tree was pruned by {pruner!r}, but the pruning path requires an "
                "unpruned tree; pass X and y, so that one is grown"
            )
        tree = unpruned.model_.trees[0]
        if self._task == "classification":
            impurity = compute_class_impurity(unpruned.model_, tree)
        elif unpruned._statistics is not None and unpruned._statistics.value is not None:
            impurity = unpruned._statistics.value[1]
        else:
            raise SettingError(
                "the pruning path requires the variance of each node, which is not computed with "
                "missing='fractional'; use missing='direction'"
            )
        alphas, impurities = compute_pruning_path(tree, impurity)
        return Bunch(ccp_alphas=alphas, impurities=impurities)

    @property
    def tree_(self) -> TreeArrays:
        """The tree as scikit-learn's read-only arrays.

        Raises
        ------
        AbsentError
            If scikit-learn's trees do not support one of its splits.
        """
        check_is_fitted(self, "model_")
        if not hasattr(self, "_arrays"):
            tree = self.model_.trees[0]
            # The weights of a forest's tree are counts of drawn rows.
            drawn = np.rint(tree.weight).astype(np.int64), None
            known = None if self._statistics is None else self._statistics.value
            n_samples, impurity = known or drawn
            if self._task == "classification":
                impurity = compute_class_impurity(self.model_, tree)
            self._arrays = make_tree_arrays(self.model_, tree, n_samples, impurity)
        return self._arrays

    def to_sklearn(self) -> Any:
        """Convert to a fitted scikit-learn estimator, for tools that require one.

        It wraps `tree_` and predicts like this estimator for numeric cells, including
        missing values: ``sklearn.tree.plot_tree(tree.to_sklearn())``.
        """
        arrays = self.tree_
        own = sklearn.tree.DecisionTreeClassifier()
        if self._task == "regression":
            own = sklearn.tree.DecisionTreeRegressor()
        own.set_params(criterion=self.model_.settings["criterion"], max_depth=self.max_depth)
        own.tree_ = arrays
        own.max_features_ = arrays.n_features
        copy_fitted_attributes(self, own)
        if self._task == "classification":
            several = arrays.n_outputs > 1
            own.n_classes_ = arrays.n_classes if several else arrays.max_n_classes
        return own

    def _store_results(self, fitted: Fitted, dataset: Dataset) -> None:
        self.__dict__.pop("_arrays", None)
        self._statistics = Later(lambda: compute_node_statistics(fitted.model, dataset))
        if not fitted.is_later:
            _ = self._statistics.value  # else it would keep the table


@dataclass(kw_only=True, eq=False, repr=False)
class DecisionTreeClassifier(ClassifierBase, TreeBase):
    """A classification tree.

    The parameters are those of `treekit.estimators.parameters.Parameters` and
    `treekit.estimators.parameters.ClassParameters`.

    Attributes
    ----------
    model_ : treekit.Model
        Save, export or verify this.
    classes_ : (classes,) array
        Sorted labels; a list of such arrays for several outputs.
    n_features_in_ : int
    feature_names_in_ : (features,) array
        Set if fitted on a dataframe whose column names are all text.
    n_outputs_ : int
    feature_importances_ : (features,) float64
    tree_ : treekit.estimators.tree_arrays.TreeArrays
        The tree as scikit-learn's read-only arrays.
    """

    criterion: Any = "gini"


@dataclass(kw_only=True, eq=False, repr=False)
class DecisionTreeRegressor(RegressorBase, TreeBase):
    """A regression tree.

    The parameters are those of `treekit.estimators.parameters.Parameters`, the
    attributes those of `DecisionTreeClassifier` without classes.
    """

    criterion: Any = "squared_error"

    def _compute_partial_dependence_recursion(self, grid: Any, target_features: Any) -> Any:
        """Return (rows,) float64; called by scikit-learn's ``partial_dependence``."""
        out = np.zeros(len(grid))
        self.tree_.compute_partial_dependence(grid, target_features, out)
        return out


# plot_tree, export_text and similar functions accept instances of these classes only.
sklearn.tree.DecisionTreeClassifier.register(DecisionTreeClassifier)
sklearn.tree.DecisionTreeRegressor.register(DecisionTreeRegressor)
