"""A model's trees as PMML 4.4: a TreeModel, or a MiningModel that sums several exactly.

Of one tree the leaves say labels and probabilities, or numbers.  Of a forest the answer is
made of whole votes: for each class but one a sum of trees that answer that class's votes,
then a regression without link (normalisation ``simplemax``) that divides them once.  Numbers
of several trees are averaged, or summed: they are multiples of one step, so no sum is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from treekit.errors import SettingError
from treekit.forms.pmml_fields import Fields
from treekit.forms.pmml_nodes import Distribution, tree_nodes
from treekit.forms.xml import Xml, visible
from treekit.model.model import least_cost
from treekit.model.tree import Split

if TYPE_CHECKING:
    from treekit.forms import Listing
    from treekit.model.model import Model

__all__ = ["model_pieces"]

_DEEPEST = 500
"""Nodes within each other that engines' XML readers take with their usual stacks."""
_KINDS = (Split.LEAF, Split.THRESHOLD, Split.SUBSET, Split.MULTIWAY, Split.MISSING)


def model_pieces(listing: Listing) -> Iterator[str]:
    """The XML of the trees of the model that `listing` is of.

    Raises
    ------
    SettingError
        Without a model, and for what PMML cannot say exactly.
    """
    model = listing.model
    if model is None:
        raise SettingError(
            "form 'pmml' writes the trees of a model, and these are only rules (some, "
            "shortened, or of labels alone): write form 'text', or, of one list of classes, "
            "'pmml-rules'"
        )
    _check(model)
    xml = Xml()
    fields = Fields(xml, model.schema, model.missing, model.unknown)
    fields.begin(visible(listing.title or model.schema.target))
    writer = _Trees(model, fields)
    if model.n_trees == 1 or len(model.schema.classes) == 1:
        yield from writer.single()
    elif model.schema.task == "regression":
        told = {"functionName": "regression", "algorithmName": "treekit"}
        xml.begin("MiningModel", told)
        fields.mining_schema()
        method = "average" if model.combine == "mean" else "sum"
        yield from writer.summed(method, np.ldexp(model.units[:, 0].astype(float), model.exponent))
        xml.end()
    else:
        yield from writer.voted()
    xml.end()
    yield xml.take() + "\n"


def _check(model: Model) -> None:
    if model.missing == "fractional":
        raise SettingError(
            "PMML cannot divide rows as exactly as the missing policy 'fractional' does: "
            "write form 'text'"
        )
    if model.margins or model.link != "identity":
        raise SettingError(
            "PMML's engines do not work out margins and links as the model does: write form 'text'"
        )
    if model.n_trees > 1 and model.label_costs is not None:
        raise SettingError(
            "PMML cannot choose the label of least cost from several trees' votes: "
            "write form 'text'"
        )
    for tree in model.trees:
        if not np.isin(tree.kind, _KINDS).all() or len(tree.surrogate_feature):
            raise SettingError(
                "PMML's trees ask single columns, and the model has other splits: "
                "write form 'text', or, of one ordered list of classes, 'pmml-rules'"
            )
        if tree.depth > _DEEPEST:
            raise SettingError(
                f"a tree of depth {tree.depth} is too deep for readers of XML, which take "
                f"{_DEEPEST}: write form 'pmml-rules'"
            )


class _Trees:
    """The models of one document."""

    def __init__(self, model: Model, fields: Fields) -> None:
        self.model, self.fields, self.xml = model, fields, fields.xml

    def single(self) -> Iterator[str]:
        """The first tree; of classes with probabilities and the leaf's number."""
        model, xml = self.model, self.xml
        regression = model.schema.task == "regression"
        self._begin("regression" if regression else "classification", 0)
        self.fields.mining_schema()
        self._outputs(leaf=True)
        if regression:
            values = np.ldexp(model.units[:, 0].astype(float), model.exponent)
            scores = list(map(repr, values.tolist()))
            yield from tree_nodes(self.fields, model.trees[0], scores, None)
        else:
            units = model.tree_units(0)
            codes = least_cost(units, model.label_costs).tolist()
            scores = [self.fields.classes[code] for code in codes]
            weights = model.trees[0].value[model.trees[0].leaves]
            shares = units / model.units_each
            found = Distribution(self.fields.classes, shares.tolist(), weights.tolist())
            yield from tree_nodes(self.fields, model.trees[0], scores, found)
        xml.end()

    def summed(self, method: str, values: np.ndarray) -> Iterator[str]:
        """A segmentation of trees whose leaves say `values`, one for each leaf of the model."""
        xml, offsets = self.xml, self.model.leaf_offsets
        xml.begin("Segmentation", {"multipleModelMethod": method})
        for number, tree in enumerate(self.model.trees):
            xml.begin("Segment", {"id": str(number + 1)})
            xml.leaf("True")
            self._begin("regression", number)
            self.fields.mining_schema("")
            own = values[offsets[number] : offsets[number + 1]]
            yield from tree_nodes(self.fields, tree, list(map(repr, own.tolist())), None)
            xml.end()
            xml.end()
        xml.end()

    def voted(self) -> Iterator[str]:
        """The votes of each class but the first, summed; the rest is the first's."""
        xml, fields, model = self.xml, self.fields, self.model
        votes = [fields.unused(f"votes_{k}") for k in range(1, len(fields.classes))]
        xml.begin("MiningModel", {"functionName": "classification", "algorithmName": "treekit"})
        fields.mining_schema()
        xml.begin("Segmentation", {"multipleModelMethod": "modelChain"})
        for k, name in enumerate(votes, 1):
            xml.begin("Segment", {"id": name})
            xml.leaf("True")
            xml.begin("MiningModel", {"functionName": "regression"})
            fields.mining_schema("")
            xml.begin("Output")
            told = {"name": name, "optype": "continuous", "dataType": "double"}
            xml.leaf("OutputField", "", {**told, "feature": "predictedValue"})
            xml.end()
            yield from self.summed("sum", model.units[:, k].astype(float))
            xml.end()
            xml.end()
        self._divided(votes)
        xml.end()
        xml.end()

    def _divided(self, votes: list[str]) -> None:
        """The segment that turns votes into probabilities and the label."""
        xml, fields = self.xml, self.fields
        xml.begin("Segment", {"id": "answer"})
        xml.leaf("True")
        told = {"functionName": "classification", "normalizationMethod": "simplemax"}
        xml.begin("RegressionModel", told)
        xml.begin("MiningSchema")
        xml.leaf("MiningField", "", {"name": fields.target, "usageType": "target"})
        for name in votes:
            xml.leaf("MiningField", "", {"name": name})
        xml.end()
        self._outputs(leaf=False)
        for k, label in enumerate(fields.classes):
            total = repr(float(self.model.unit_total)) if k == 0 else "0.0"
            xml.begin("RegressionTable", {"intercept": total, "targetCategory": label})
            for j, name in enumerate(votes, 1):
                if k in (0, j):
                    part = "1.0" if k else "-1.0"
                    xml.leaf("NumericPredictor", "", {"name": name, "coefficient": part})
            xml.end()
        xml.end()
        xml.end()

    def _begin(self, function: str, tree: int) -> None:
        binary = bool((self.model.trees[tree].n_children <= 2).all())
        told = {"functionName": function, "algorithmName": "treekit"}
        told["missingValueStrategy"] = "defaultChild"
        told["splitCharacteristic"] = "binarySplit" if binary else "multiSplit"
        self.xml.begin("TreeModel", told)

    def _outputs(self, *, leaf: bool) -> None:
        """Probabilities of classes, named after them; of one tree the number of the leaf."""
        xml, fields = self.xml, self.fields
        used = {*fields.names, fields.target}
        xml.begin("Output")
        for label in fields.classes:
            name = f"probability({label})"
            while name in used:
                name += "_"
            used.add(name)
            told = {"name": name, "optype": "continuous", "dataType": "double"}
            xml.leaf("OutputField", "", {**told, "feature": "probability", "value": label})
        if leaf:
            told = {"name": fields.unused("node"), "optype": "categorical", "dataType": "string"}
            xml.leaf("OutputField", "", {**told, "feature": "entityId"})
        xml.end()
