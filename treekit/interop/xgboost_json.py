"""XGBoost's model files as plain records: parsed, not yet understood.

The schema is ``doc/model.schema`` of XGBoost; keys that are not named here are
passed over.  JSON and UBJSON hold the same.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from treekit.errors import ModelFileError
from treekit.interop.ubjson import decode

__all__ = ["Forest", "Learner", "TreeRecord", "XgboostFile", "parse"]


Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Whole numbers that arrays hold; a file may say any."""


class TreeParam(msgspec.Struct):
    """Sizes of a tree, as text."""

    size_leaf_vector: str = "1"


class TreeRecord(msgspec.Struct):
    """The arrays of one tree, node by node; of categories, split by split."""

    left_children: list[Whole]
    right_children: list[Whole]
    split_indices: list[Whole]
    split_conditions: list[float]
    default_left: list[Whole | bool]
    tree_param: TreeParam = msgspec.field(default_factory=TreeParam)
    split_type: list[Whole] = []
    categories: list[Whole] = []
    categories_nodes: list[Whole] = []
    categories_segments: list[Whole] = []
    categories_sizes: list[Whole] = []
    sum_hessian: list[float] = []
    loss_changes: list[float] = []
    base_weights: list[float] = []
    leaf_weights: list[float] = []


class Categories(msgspec.Struct):
    """The vocabulary of one column: UTF-8 in one piece with offsets, or numbers."""

    values: list[float]
    offsets: list[Whole] | None = None


class Encodings(msgspec.Struct):
    """The vocabularies of all columns; empty where the training data had codes."""

    enc: list[Categories] = []


class Forest(msgspec.Struct):
    """All trees, and which margin each adds to."""

    trees: list[TreeRecord] = []
    tree_info: list[Whole] = []
    iteration_indptr: list[Whole] = []
    gbtree_model_param: dict[str, str] = {}
    cats: Encodings = msgspec.field(default_factory=Encodings)


class GbTree(msgspec.Struct):
    """What ``dart`` wraps."""

    model: Forest


class Booster(msgspec.Struct):
    """``gbtree`` has a model, ``dart`` a gbtree and weights, ``gblinear`` a model of no trees."""

    name: str
    model: Forest | None = None
    gbtree: GbTree | None = None
    weight_drop: list[float] = []


class ModelParam(msgspec.Struct):
    """Numbers as text."""

    base_score: str
    num_class: str = "0"
    num_feature: str = "0"
    num_target: str = "1"


class Objective(msgspec.Struct):
    """Its settings decide nothing here."""

    name: str


class Learner(msgspec.Struct):
    """The model without its version."""

    gradient_booster: Booster
    learner_model_param: ModelParam
    objective: Objective
    feature_names: list[str] = []
    feature_types: list[str] = []
    attributes: dict[str, str] = {}


class XgboostFile(msgspec.Struct):
    """A whole file."""

    learner: Learner
    version: list[Whole] = []


def parse(content: bytes) -> XgboostFile:
    """Read JSON or UBJSON, whichever it is.

    Raises
    ------
    ModelFileError
        If it is neither, or lacks what a model must have.
    """
    try:
        # UBJSON's first key has a length in front; JSON's a quotation mark.
        if content[:1] == b"{" and content[1:2] in b"LlIUi#$" and content[1:2]:
            return msgspec.convert(decode(content), XgboostFile)
        return msgspec.json.decode(content, type=XgboostFile)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelFileError(f"the XGBoost model is damaged, or none: {error}") from error
