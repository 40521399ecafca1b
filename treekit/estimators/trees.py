"""Single trees as scikit-learn estimators."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    class_impurity,
    facts_of_rows,
    facts_of_weights,
    impurity_path,
)
from treekit.estimators.tree_arrays import TreeArrays, path_matrix, tree_arrays
from treekit.training import Fitted

__all__ = ["DecisionTreeClassifier", "DecisionTreeRegressor"]


class TreeBase(EstimatorBase):
    """What both trees share."""

    _ensemble = "tree"

    def get_depth(self) -> int:
        """Edges from the root to the deepest leaf."""
        check_is_fitted(self, "model_")
        return self.model_.depth

    def get_n_leaves(self) -> int:
        """Number of leaves."""
        check_is_fitted(self, "model_")
        return self.model_.n_leaves

    def decision_path(self, X: Any) -> Any:
        """(rows, nodes) CSR matrix: 1 where the row passes through the node."""
        leaf = self.apply(X)
        return path_matrix(self.model_.trees[0].parent, leaf)

    def cost_complexity_pruning_path(
        self, X: Any = None, y: Any = None, sample_weight: Any = None
    ) -> Bunch:
        """The alphas that break the links of the unpruned tree, and the impurities left.

        Parameters
        ----------
        X, y : table and target, optional
            To grow the tree from.  Without them it is the one that was fitted: nothing
            is grown, and the path takes a small part of a fit.

        Returns
        -------
        Bunch
            ``ccp_alphas`` and ``impurities``, (links + 1,) float64 each, ascending; any
            of the alphas may be given as `ccp_alpha`.

        Raises
        ------
        SettingError
            If the fitted tree was pruned, or its impurities are not known.
        """
        whole = self
        if X is not None or y is not None:
            whole = clone(self).set_params(pruner="none", pruner_settings=None, ccp_alpha=0.0)
            whole.fit(X, y, sample_weight)
        check_is_fitted(whole, "model_")
        pruner = whole.model_.settings.get("pruner")
        if pruner not in (None, "none"):
            raise SettingError(
                f"the fitted tree was pruned by {pruner!r}, and its path is that of the whole "
                "tree; give X and y to grow it"
            )
        tree = whole.model_.trees[0]
        if self._task == "classification":
            impurity = class_impurity(whole.model_, tree)
        elif (facts := getattr(whole, "_facts", None)) is None or facts.impurity is None:
            raise SettingError(
                "the spread of rows that go down several branches is not known; use "
                "missing='direction'"
            )
        else:
            impurity = facts.impurity
        alphas, impurities = impurity_path(tree, impurity)
        return Bunch(ccp_alphas=alphas, impurities=impurities)

    @property
    def tree_(self) -> TreeArrays:
        """The tree as scikit-learn's read-only arrays.

        Raises
        ------
        AbsentError
            If it holds a split that scikit-learn's trees cannot.
        """
        check_is_fitted(self, "model_")
        if not hasattr(self, "_arrays"):
            tree = self.model_.trees[0]
            facts = getattr(self, "_facts", None) or facts_of_weights(tree)
            if facts.impurity is None and self._task == "classification":
                facts = replace(facts, impurity=class_impurity(self.model_, tree))
            self._arrays = tree_arrays(self.model_, tree, facts)
        return self._arrays

    def to_sklearn(self) -> Any:
        """A fitted estimator of scikit-learn's own class, for tools that insist on one.

        It holds `tree_` and answers as this one does where cells are numbers
        (of its own missing values, too): ``sklearn.tree.plot_tree(tree.to_sklearn())``.
        """
        arrays = self.tree_
        own = sklearn.tree.DecisionTreeClassifier()
        if self._task == "regression":
            own = sklearn.tree.DecisionTreeRegressor()
        own.set_params(criterion=self.model_.settings["criterion"], max_depth=self.max_depth)
        own.tree_ = arrays
        own.max_features_ = arrays.n_features
        for name in ("n_features_in_", "feature_names_in_", "n_outputs_", "classes_"):
            if hasattr(self, name):
                setattr(own, name, getattr(self, name))
        if self._task == "classification":
            several = arrays.n_outputs > 1
            own.n_classes_ = arrays.n_classes if several else arrays.max_n_classes
        return own

    def _keep(self, fitted: Fitted, dataset: Dataset) -> None:
        self.__dict__.pop("_arrays", None)
        self._facts = facts_of_rows(fitted.model, dataset)


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
        Labels, sorted; of several outputs a list of such arrays.
    n_features_in_ : int
    feature_names_in_ : (features,) array
        Only if fitted on a dataframe whose column names are all text.
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
        """(rows,) float64: what scikit-learn's `partial_dependence` asks of regression trees."""
        out = np.zeros(len(grid))
        self.tree_.compute_partial_dependence(grid, target_features, out)
        return out


# plot_tree, export_text and their like read `tree_`, of a scikit-learn class only.
sklearn.tree.DecisionTreeClassifier.register(DecisionTreeClassifier)
sklearn.tree.DecisionTreeRegressor.register(DecisionTreeRegressor)
