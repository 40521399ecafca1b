"""Single trees as scikit-learn estimators."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from treekit.estimators.base import ClassifierBase, EstimatorBase, RegressorBase

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


class DecisionTreeClassifier(ClassifierBase, TreeBase):
    """A classification tree.

    Parameters
    ----------
    criterion : str or treekit.Criterion
        Split criterion: the name of an installed one, or a record.
    splitter : str or treekit.Splitter
        ``auto`` is ``exact`` up to 10,000 rows and ``histogram`` above.
    max_depth : int, optional
    min_samples_split, min_samples_leaf : int or float
        Training weight that a node needs to be split, and that each side of
        a split needs; a float is a share of all.  A row of weight 3 counts
        three times; with weights that are no whole numbers a size counts in
        mean weights, and 2 and 1 mean no bound.
    min_weight_fraction_leaf : float
        Share of all weight that each side of a split needs.
    max_features : {"sqrt", "log2"}, int, float, optional
        Columns tried at a node: a number, or a share; None: all.
    random_state : int, RandomState, optional
        A whole number is the seed of ``treekit.train``.
    max_leaf_nodes : int, optional
        Leaves at most, grown best first.
    min_gain : float
        Score that a split must exceed, in the criterion's own units at the
        node.  (scikit-learn's ``min_impurity_decrease`` is that score times
        the node's share of the rows.)
    class_weight : dict or "balanced", optional
        Weight of each label, times the rows' own; as in scikit-learn.
    categorical : "from_dtype", None, or sequence
        ``from_dtype``: columns of text or of a categorical type (pandas,
        polars, Arrow); None: none; otherwise names, positions or a mask.
    nominal_splits : {"subset", "multiway"}
        Split categories in two sets, or one branch each.
    pruner : str or treekit.Pruner, optional
        ``cost_complexity``, ``reduced_error``, or an installed one.
    missing : {"direction", "error"}
        Missing cells take a learned side, or are refused.
    unknown : {"missing", "error"}
        Categories that training did not see count as missing, or are refused.
    dtype : {"auto", "float32", "float64"}
        Input type of the model; ``auto`` is float32 unless a column would lose by it.
    criterion_settings, splitter_settings, pruner_settings : dict, optional
        The components' own settings by name, such as ``{"alpha": 0.01}``.
    max_bins : int
        Histogram splitter: bins a numeric column, at most 255.

    Attributes
    ----------
    model_ : treekit.Model
        Save, export or verify this.
    classes_ : (classes,) array
        Labels, sorted.
    n_features_in_ : int
    feature_names_in_ : (features,) array
        Only if fitted on a dataframe whose column names are all text.
    n_outputs_ : int
        Always 1.
    feature_importances_ : (features,) float64
    """

    def __init__(
        self,
        *,
        criterion: Any = "gini",
        splitter: Any = "auto",
        max_depth: int | None = None,
        min_samples_split: float = 2,
        min_samples_leaf: float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: Any = None,
        random_state: Any = None,
        max_leaf_nodes: int | None = None,
        min_gain: float = 0.0,
        class_weight: Any = None,
        categorical: Any = "from_dtype",
        nominal_splits: str = "subset",
        pruner: Any = None,
        missing: str = "direction",
        unknown: str = "missing",
        dtype: str = "auto",
        criterion_settings: dict[str, Any] | None = None,
        splitter_settings: dict[str, Any] | None = None,
        pruner_settings: dict[str, Any] | None = None,
        max_bins: int = 255,
    ) -> None:
        self.criterion = criterion
        self.splitter = splitter
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_features = max_features
        self.random_state = random_state
        self.max_leaf_nodes = max_leaf_nodes
        self.min_gain = min_gain
        self.class_weight = class_weight
        self.categorical = categorical
        self.nominal_splits = nominal_splits
        self.pruner = pruner
        self.missing = missing
        self.unknown = unknown
        self.dtype = dtype
        self.criterion_settings = criterion_settings
        self.splitter_settings = splitter_settings
        self.pruner_settings = pruner_settings
        self.max_bins = max_bins


class DecisionTreeRegressor(RegressorBase, TreeBase):
    """A regression tree.

    Parameters and attributes are those of `DecisionTreeClassifier`, without
    classes and their weights.
    """

    def __init__(
        self,
        *,
        criterion: Any = "squared_error",
        splitter: Any = "auto",
        max_depth: int | None = None,
        min_samples_split: float = 2,
        min_samples_leaf: float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: Any = None,
        random_state: Any = None,
        max_leaf_nodes: int | None = None,
        min_gain: float = 0.0,
        categorical: Any = "from_dtype",
        nominal_splits: str = "subset",
        pruner: Any = None,
        missing: str = "direction",
        unknown: str = "missing",
        dtype: str = "auto",
        criterion_settings: dict[str, Any] | None = None,
        splitter_settings: dict[str, Any] | None = None,
        pruner_settings: dict[str, Any] | None = None,
        max_bins: int = 255,
    ) -> None:
        self.criterion = criterion
        self.splitter = splitter
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_features = max_features
        self.random_state = random_state
        self.max_leaf_nodes = max_leaf_nodes
        self.min_gain = min_gain
        self.categorical = categorical
        self.nominal_splits = nominal_splits
        self.pruner = pruner
        self.missing = missing
        self.unknown = unknown
        self.dtype = dtype
        self.criterion_settings = criterion_settings
        self.splitter_settings = splitter_settings
        self.pruner_settings = pruner_settings
        self.max_bins = max_bins
