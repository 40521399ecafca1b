"""Trees as PMML 4.4: a TreeModel, or a MiningModel that sums several trees exactly.

The leaves of a single tree hold labels and probabilities, or numbers.  A forest of classes
uses integer votes: for each class but one, a sum of trees that return that class's votes,
then a regression without link (normalisation ``simplemax``) that divides them once.  Numbers
of several trees are averaged or summed: they are multiples of one step, so sums are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from treekit.data.schema import Label, Schema
from treekit.documents.layout import compute_shares, predict_rule_labels
from treekit.errors import SettingError
from treekit.model.fixed_point import scale_units, to_double_threshold
from treekit.model.model import predict_labels
from treekit.model.tree import Split, Tree
from treekit.rules.rule_list import RuleList

if TYPE_CHECKING:
    from treekit.documents import Listing
    from treekit.model.model import Model

__all__ = [
    "LABEL_TYPES",
    "LeafDistribution",
    "PmmlFields",
    "XmlWriter",
    "escape_unprintable",
    "format_class_label",
    "is_xml_text",
    "render_pmml",
    "render_pmml_rules",
    "write_tree_nodes",
]


# ---------------------------------------------------------------- pmml

_MAX_DEPTH = 500
"""Nesting depth of nodes that the XML readers of engines support with default stacks."""
_SUPPORTED_SPLITS = (Split.LEAF, Split.THRESHOLD, Split.SUBSET, Split.MULTIWAY, Split.MISSING)


def render_pmml(listing: Listing) -> Iterator[str]:
    """Return the XML of the trees of the model of `listing`, in pieces.

    Raises
    ------
    SettingError
        If there is no model, or PMML cannot represent it exactly.
    """
    model = listing.model
    if model is None or listing.tree is not None:
        raise SettingError(
            "form 'pmml' writes the trees of a model, but only rules are given (selected or "
            "shortened rules, or labels without values); write form 'text', or 'pmml-rules' for "
            "one list of rules for classes"
        )
    _check_model(model)
    xml = XmlWriter()
    fields = PmmlFields(xml, model.schema, model.missing, model.unknown)
    fields.begin_document(escape_unprintable(listing.title or model.schema.target))
    writer = _TreeModels(model, fields)
    if model.n_trees == 1 or len(model.schema.classes) == 1:
        yield from writer.write_single_tree()
    elif model.schema.task == "regression":
        attributes = {"functionName": "regression", "algorithmName": "treekit"}
        xml.begin_element("MiningModel", attributes)
        fields.write_mining_schema()
        method = "average" if model.combine == "mean" else "sum"
        yield from writer.write_summed_trees(method, scale_units(model.units, model.exponent)[:, 0])
        xml.end_element()
    else:
        yield from writer.write_voting_trees()
    xml.end_element()
    yield xml.take_text() + "\n"


def _check_model(model: Model) -> None:
    if model.missing == "fractional":
        raise SettingError(
            "PMML cannot represent fractional instances exactly (missing policy 'fractional'); "
            "write form 'text'"
        )
    if model.margins or model.link != "identity":
        raise SettingError(
            "PMML engines do not evaluate margins and links exactly; write form 'text'"
        )
    if model.n_trees > 1 and model.has_wide_sums:
        raise SettingError(
            "PMML adds doubles, and the leaf values of this forest differ too much in size for "
            "exact sums; write form 'text', or train one tree"
        )
    if model.n_trees > 1 and model.label_costs is not None:
        raise SettingError(
            "PMML cannot choose the label of least cost from the votes of several trees; "
            "write form 'text'"
        )
    for tree in model.trees:
        if not np.isin(tree.kind, _SUPPORTED_SPLITS).all() or len(tree.surrogate_feature):
            raise SettingError(
                "PMML tests single columns, and the model has oblique splits or surrogates; write "
                "form 'text'"
            )
        if tree.depth > _MAX_DEPTH:
            votes = model.schema.task == "classification" and model.n_trees == 1
            raise SettingError(
                f"a tree of depth {tree.depth} is too deep for XML readers (at most "
                f"{_MAX_DEPTH}); write form {'pmml-rules' if votes else 'text'!r}"
            )


class _TreeModels:
    """Writer of the tree models of one document."""

    def __init__(self, model: Model, fields: PmmlFields) -> None:
        self.model, self.fields, self.xml = model, fields, fields.xml

    def write_single_tree(self) -> Iterator[str]:
        """Write the first tree, with the leaf's node number and, for classes, probabilities."""
        model, xml = self.model, self.xml
        regression = model.schema.task == "regression"
        self._begin_tree_model("regression" if regression else "classification", 0)
        self.fields.write_mining_schema()
        self._write_outputs(leaf=True)
        if regression:
            values = scale_units(model.units, model.exponent)[:, 0]
            scores = list(map(repr, values.tolist()))
            yield from write_tree_nodes(self.fields, model.trees[0], scores, None)
        else:
            units = model.tree_units(0)
            codes = predict_labels(units, model.label_costs).tolist()
            scores = [self.fields.classes[code] for code in codes]
            weights = model.trees[0].value[model.trees[0].leaves]
            shares = units / model.units_each
            found = LeafDistribution(self.fields.classes, shares.tolist(), weights.tolist())
            yield from write_tree_nodes(self.fields, model.trees[0], scores, found)
        xml.end_element()

    def write_summed_trees(self, method: str, values: np.ndarray) -> Iterator[str]:
        """Write a segmentation of the trees; `values` has one number per leaf of the model."""
        xml, offsets = self.xml, self.model.leaf_offsets
        xml.begin_element("Segmentation", {"multipleModelMethod": method})
        for number, tree in enumerate(self.model.trees):
            xml.begin_element("Segment", {"id": str(number + 1)})
            xml.write_element("True")
            self._begin_tree_model("regression", number)
            self.fields.write_mining_schema("")
            own = values[offsets[number] : offsets[number + 1]]
            yield from write_tree_nodes(self.fields, tree, list(map(repr, own.tolist())), None)
            xml.end_element()
            xml.end_element()
        xml.end_element()

    def write_voting_trees(self) -> Iterator[str]:
        """Write the summed votes of each class but the first, which gets the remainder."""
        xml, fields, model = self.xml, self.fields, self.model
        votes = [fields.make_unused_name(f"votes_{k}") for k in range(1, len(fields.classes))]
        xml.begin_element(
            "MiningModel", {"functionName": "classification", "algorithmName": "treekit"}
        )
        fields.write_mining_schema()
        xml.begin_element("Segmentation", {"multipleModelMethod": "modelChain"})
        for k, name in enumerate(votes, 1):
            xml.begin_element("Segment", {"id": name})
            xml.write_element("True")
            xml.begin_element("MiningModel", {"functionName": "regression"})
            fields.write_mining_schema("")
            xml.begin_element("Output")
            attributes = {"name": name, "optype": "continuous", "dataType": "double"}
            xml.write_element("OutputField", "", {**attributes, "feature": "predictedValue"})
            xml.end_element()
            yield from self.write_summed_trees("sum", model.units[:, k].astype(float))
            xml.end_element()
            xml.end_element()
        self._write_division(votes)
        xml.end_element()
        xml.end_element()

    def _write_division(self, votes: list[str]) -> None:
        """Write the segment that turns votes into probabilities and the label."""
        xml, fields = self.xml, self.fields
        xml.begin_element("Segment", {"id": "answer"})
        xml.write_element("True")
        attributes = {"functionName": "classification", "normalizationMethod": "simplemax"}
        xml.begin_element("RegressionModel", attributes)
        xml.begin_element("MiningSchema")
        xml.write_element("MiningField", "", {"name": fields.target, "usageType": "target"})
        for name in votes:
            xml.write_element("MiningField", "", {"name": name})
        xml.end_element()
        self._write_outputs(leaf=False)
        for k, label in enumerate(fields.classes):
            total = repr(float(self.model.unit_total)) if k == 0 else "0.0"
            xml.begin_element("RegressionTable", {"intercept": total, "targetCategory": label})
            for j, name in enumerate(votes, 1):
                if k in (0, j):
                    part = "1.0" if k else "-1.0"
                    xml.write_element("NumericPredictor", "", {"name": name, "coefficient": part})
            xml.end_element()
        xml.end_element()
        xml.end_element()

    def _begin_tree_model(self, function: str, tree: int) -> None:
        binary = bool((self.model.trees[tree].n_children <= 2).all())
        attributes = {"functionName": function, "algorithmName": "treekit"}
        attributes["missingValueStrategy"] = "defaultChild"
        attributes["splitCharacteristic"] = "binarySplit" if binary else "multiSplit"
        self.xml.begin_element("TreeModel", attributes)

    def _write_outputs(self, *, leaf: bool) -> None:
        """Write outputs: class probabilities, and the leaf's node number for a single tree."""
        xml, fields = self.xml, self.fields
        used = {*fields.names, fields.target}
        xml.begin_element("Output")
        for label in fields.classes:
            name = f"probability({label})"
            while name in used:
                name += "_"
            used.add(name)
            attributes = {"name": name, "optype": "continuous", "dataType": "double"}
            xml.write_element(
                "OutputField", "", {**attributes, "feature": "probability", "value": label}
            )
        if leaf:
            name = fields.make_unused_name("node")
            attributes = {"name": name, "optype": "categorical", "dataType": "string"}
            xml.write_element("OutputField", "", {**attributes, "feature": "entityId"})
        xml.end_element()


# ---------------------------------------------------------------- pmml fields
# Fields, policies and predicates of a PMML 4.4 document.
#
# Numbers are doubles here, whatever the model's input type: a bound is the largest double
# that the model's own comparison accepts (see `treekit.model.fixed_point.to_double_threshold`),
# so that engines need not round inputs as the model does.

LABEL_TYPES = {str: "string", bool: "boolean", int: "integer", float: "double"}
_NAMESPACE = "http://www.dmg.org/PMML-4_4"
_PLAIN_BLANKS = frozenset(" ")


class PmmlFields:
    """Fields of a PMML document, and the elements that refer to them.

    Attributes
    ----------
    names : list of str
        Names of the columns.
    target : str
        Name of the target, made unique among the columns.
    """

    def __init__(self, xml: XmlWriter, schema: Schema, missing: str, unknown: str) -> None:
        if schema.more:
            raise SettingError(
                f"a PMML model has one target, and the rules have {len(schema.outputs)}; "
                "write form 'text'"
            )
        self.xml, self.schema = xml, schema
        self.missing, self.unknown = missing, unknown
        self.names = [self._check_text(name, "the column name") for name in schema.names]
        self.target = self.make_unused_name(
            self._check_text(schema.target, "the target's name") or "target"
        )
        for column in schema.columns:
            for level in column.levels:
                self._check_text(level, f"a category of column {column.name!r}")
        self.classes = [
            self._check_text(format_class_label(label), "the label") for label in schema.classes
        ]

    @staticmethod
    def _check_text(text: str, role: str) -> str:
        if not is_xml_text(text):
            raise SettingError(
                f"{role} {text[:80]!r} contains a character that XML 1.0 does not allow; rename it"
            )
        return text

    def make_unused_name(self, name: str) -> str:
        """Return `name`, extended if a column already has it."""
        while name in self.names:
            name += "_"
        return name

    def begin_document(self, description: str) -> None:
        """Write the document up to its model."""
        xml = self.xml
        xml.begin_element("PMML", {"xmlns": _NAMESPACE, "version": "4.4"})
        xml.begin_element("Header", {"description": description})
        xml.write_element("Application", "", {"name": "treekit"})
        xml.end_element()
        xml.begin_element("DataDictionary", {"numberOfFields": str(len(self.names) + 1)})
        for name, column in zip(self.names, self.schema.columns, strict=True):
            if column.kind == "numeric":
                self._write_field(name, "continuous", "double", ())
                continue
            if not column.levels and "error" in (self.missing, self.unknown):
                raise SettingError(
                    f"column {name!r} has no categories that PMML can list as valid, and the "
                    "rules refuse invalid values; write form 'text'"
                )
            self._write_field(name, "categorical", "string", column.levels)
        if self.schema.classes:
            kind = LABEL_TYPES[type(self.schema.classes[0])]
            self._write_field(self.target, "categorical", kind, self.classes)
        else:
            self._write_field(self.target, "continuous", "double", ())
        xml.end_element()

    def _write_field(self, name: str, optype: str, kind: str, values: Sequence[str]) -> None:
        self.xml.begin_element("DataField", {"name": name, "optype": optype, "dataType": kind})
        for value in values:
            self.xml.write_element("Value", "", {"value": value})
        self.xml.end_element()

    def write_mining_schema(self, target: str | None = None) -> None:
        """Write the input fields of a model, with their treatment of missing and unknown values."""
        self.xml.begin_element("MiningSchema")
        if target != "":
            attributes = {"name": target or self.target, "usageType": "target"}
            self.xml.write_element("MiningField", "", attributes)
        for name in self.names:
            attributes = {"name": name}
            attributes["invalidValueTreatment"] = (
                "returnInvalid" if self.refuses_rows else "asMissing"
            )
            if self.missing == "error":
                attributes["missingValueTreatment"] = "returnInvalid"
            self.xml.write_element("MiningField", "", attributes)
        self.xml.end_element()

    @property
    def refuses_rows(self) -> bool:
        """Whether a policy refuses rows."""
        return "error" in (self.missing, self.unknown)

    def write_guard(self) -> None:
        """Write a predicate that names each field that a policy may refuse, true for accepted rows.

        Engines check a field only when a predicate names it, and the trees may not name all.
        """
        columns = [
            number
            for number, column in enumerate(self.schema.columns)
            if self.missing == "error" or (self.unknown == "error" and column.kind == "nominal")
        ]
        if not columns:
            self.xml.write_element("True")
            return
        self.xml.begin_element("CompoundPredicate", {"booleanOperator": "and"})
        self.xml.write_element("True")  # a compound predicate needs at least two parts
        for column in columns:
            if self.missing == "error":
                self.write_comparison(column, "isNotMissing")
                continue
            self.xml.begin_element("CompoundPredicate", {"booleanOperator": "or"})
            self.write_comparison(column, "isMissing")
            self.write_comparison(column, "isNotMissing")
            self.xml.end_element()
        self.xml.end_element()

    def write_comparison(self, column: int, operator: str, value: str = "") -> None:
        """Write a simple predicate."""
        attributes = {"field": self.names[column], "operator": operator}
        if operator not in ("isMissing", "isNotMissing"):
            attributes["value"] = value
        self.xml.write_element("SimplePredicate", "", attributes)

    def write_membership(self, column: int, levels: Sequence[str]) -> None:
        """Write a predicate for one of some categories; unknown if the value is missing."""
        if not levels:
            self.xml.write_element("False")
        elif len(levels) == 1:
            self.write_comparison(column, "equal", levels[0])
        elif all(_is_array_safe(level) for level in levels):
            self.xml.begin_element(
                "SimpleSetPredicate", {"field": self.names[column], "booleanOperator": "isIn"}
            )
            text = " ".join(f'"{level}"' for level in levels)
            self.xml.write_element("Array", text, {"type": "string", "n": str(len(levels))})
            self.xml.end_element()
        else:  # engines disagree on escapes in arrays
            self.xml.begin_element("CompoundPredicate", {"booleanOperator": "or"})
            for level in levels:
                self.write_comparison(column, "equal", level)
            self.xml.end_element()


def _is_array_safe(level: str) -> bool:
    """Check whether a category can be quoted in an array without escapes."""
    blanks = not _PLAIN_BLANKS.issuperset(c for c in level if c.isspace())
    return bool(level) and level.isprintable() and not blanks and not set('"\\') & set(level)


def format_class_label(label: Label) -> str:
    """Return a class label as text of its PMML data type.

    Raises
    ------
    SettingError
        For an integer outside the 32-bit range of PMML engines.
    """
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, int) and not -(2**31) <= label < 2**31:
        raise SettingError(f"the class label {label} exceeds PMML's 32-bit integers; rename it")
    return label if isinstance(label, str) else repr(label)


# ---------------------------------------------------------------- pmml nodes
# The nodes of one tree, from the root down, without recursion.

_NODES_PER_PIECE = 2048


class LeafDistribution(NamedTuple):
    """Class distributions of the leaves."""

    labels: Sequence[str]
    shares: Sequence[Sequence[float]]
    weights: Sequence[Sequence[float]]


def write_tree_nodes(
    fields: PmmlFields, tree: Tree, scores: Sequence[str], leaves: LeafDistribution | None
) -> Iterator[str]:
    """Write the nodes of a tree; a predicate is unknown where the value is missing.

    Engines then take the parent's ``defaultChild``, the child for missing values.

    Parameters
    ----------
    fields : PmmlFields
    tree : Tree
    scores : sequence of str
        Value of each leaf, in node order.
    leaves : LeafDistribution, optional
    """
    xml, walk = fields.xml, _BranchPredicates(fields, tree)
    leaf_of = np.cumsum(tree.kind == Split.LEAF) - 1
    kind, first, count = tree.kind.tolist(), tree.first_child.tolist(), tree.n_children.tolist()
    weight, written = tree.weight.tolist(), 0
    stack: list[tuple[int, int, int]] = [(0, -1, 0)]
    while stack:
        node, parent, branch = stack.pop()
        if node < 0:
            xml.end_element()
            continue
        attributes = {"id": str(node)}
        if kind[node] == Split.LEAF:
            attributes["score"] = scores[leaf_of[node]]
        elif kind[node] != Split.MISSING:
            attributes["defaultChild"] = str(first[node] + int(tree.missing[node]))
        xml.begin_element("Node", {**attributes, "recordCount": repr(weight[node])})
        walk.write_predicate(parent, branch)
        if kind[node] == Split.LEAF and leaves is not None:
            at = int(leaf_of[node])
            for label, share, own in zip(
                leaves.labels, leaves.shares[at], leaves.weights[at], strict=True
            ):
                counts = {"value": label, "recordCount": repr(own), "probability": repr(share)}
                xml.write_element("ScoreDistribution", "", counts)
        stack.append((-1, -1, 0))
        stack += [(first[node] + b, node, b) for b in range(count[node] - 1, -1, -1)]
        written += 1
        if written % _NODES_PER_PIECE == 0:
            yield xml.take_text()
    yield xml.take_text()


class _BranchPredicates:
    """Predicates of the branches of a tree."""

    def __init__(self, fields: PmmlFields, tree: Tree) -> None:
        self.fields, self.tree = fields, tree
        finite = np.where(tree.kind == Split.THRESHOLD, tree.threshold, 0.0)
        single = fields.schema.dtype == "float32"
        self.threshold = (to_double_threshold(finite) if single else finite).tolist()

    def write_predicate(self, node: int, branch: int) -> None:
        """Write the predicate for rows that go from `node` to its `branch`."""
        fields = self.fields
        if node < 0:
            fields.write_guard()
            return
        kind, column = self.tree.kind[node], int(self.tree.feature[node])
        described = fields.schema.columns[column]
        if described.kind == "nominal" and not described.levels:  # every value is missing
            missing = 0 if kind == Split.MISSING else self.tree.missing[node]
            fields.xml.write_element("True" if branch == missing else "False")
        elif kind == Split.THRESHOLD:
            operator = "greaterThan" if branch else "lessOrEqual"
            fields.write_comparison(column, operator, repr(self.threshold[node]))
        elif kind == Split.MISSING:
            fields.write_comparison(column, "isNotMissing" if branch else "isMissing")
        else:
            first, last = self.tree.level_offsets[node : node + 2].tolist()
            goes = self.tree.level_branch[first:last]
            goes = np.where(goes < 0, self.tree.missing[node], goes)
            fields.write_membership(
                column, [described.levels[c] for c in np.flatnonzero(goes == branch)]
            )


# ---------------------------------------------------------------- pmml rules
# The rules of one tree, or an ordered list, as a RuleSetModel of PMML 4.4.
#
# The first rule whose predicate is true determines the prediction (selection ``firstHit``);
# for disjoint rules it is the only one.

_RULES_PER_PIECE = 1024


def render_pmml_rules(listing: Listing) -> Iterator[str]:
    """Return the XML of `listing` as a rule set, in pieces; a rule's id is its number, from 1.

    Raises
    ------
    SettingError
        If a rule set cannot represent the rules: numbers, several trees or targets, fractional
        instances, or tests on more than one column.
    """
    rules = listing.rules
    _check_rules(rules)
    xml = XmlWriter()
    fields = PmmlFields(xml, rules.schema, rules.missing, rules.unknown)
    fields.begin_document(escape_unprintable(listing.title or rules.schema.target))
    attributes = {"functionName": "classification", "algorithmName": "treekit"}
    xml.begin_element("RuleSetModel", attributes)
    fields.write_mining_schema()
    _write_rule_outputs(fields)
    xml.begin_element("RuleSet")
    xml.write_element("RuleSelectionMethod", "", {"criterion": "firstHit"})
    if fields.refuses_rows:
        xml.begin_element("CompoundRule")
        fields.write_guard()
    predicates = _RulePredicates(rules, fields)
    codes, parts = predict_rule_labels(rules)[0].tolist(), compute_shares(rules)
    support = rules.support.tolist()
    for number, code in enumerate(codes):
        own = parts[number].tolist()
        attributes = {"id": str(number + 1), "score": fields.classes[code]}
        attributes |= {"recordCount": repr(support[number]), "confidence": repr(own[code])}
        xml.begin_element("SimpleRule", attributes)
        predicates.write_conditions(number)
        for label, part in zip(fields.classes, own, strict=True):
            weight = {"recordCount": repr(part * support[number]), "probability": repr(part)}
            xml.write_element("ScoreDistribution", "", {"value": label, **weight})
        xml.end_element()
        if number % _RULES_PER_PIECE == 0:
            yield xml.take_text()
    for _ in range(4 if fields.refuses_rows else 3):
        xml.end_element()
    yield xml.take_text() + "\n"


def _check_rules(rules: RuleList) -> None:
    if rules.schema.task == "regression" or rules.margins:
        raise SettingError(
            "a PMML rule set predicts classes, and these rules predict numbers or margins; "
            "write form 'pmml' for a regression tree, else 'text'"
        )
    if rules.n_trees > 1:
        raise SettingError(
            f"a PMML rule set is one list, and these are the rules of {rules.n_trees} trees; "
            "write form 'pmml' for a forest, else 'text'"
        )
    if rules.mass > 1:
        raise SettingError(
            "PMML cannot represent fractional instances exactly (missing policy 'fractional'); "
            "write form 'text'"
        )
    if rules.tests:
        raise SettingError("the rules have tests on more than one column; write form 'text'")


def _write_rule_outputs(fields: PmmlFields) -> None:
    """Write the output field for the number of the matching rule."""
    xml = fields.xml
    xml.begin_element("Output")
    attributes = {
        "name": fields.make_unused_name("rule"),
        "optype": "categorical",
        "dataType": "string",
    }
    xml.write_element("OutputField", "", {**attributes, "feature": "entityId"})
    xml.end_element()


class _RulePredicates:
    """Predicates of rules."""

    def __init__(self, rules: RuleList, fields: PmmlFields) -> None:
        self.rules, self.fields = rules, fields
        table = rules.conditions
        ends = [table.low, table.high]
        if rules.schema.dtype == "float32":
            ends = [
                np.where(
                    np.isfinite(end), to_double_threshold(np.where(np.isfinite(end), end, 0)), end
                )
                for end in ends
            ]
        self.low, self.high = (end.tolist() for end in ends)
        self.known, self.missing = table.known.tolist(), table.missing.tolist()
        self.column = table.column.tolist()

    def write_conditions(self, rule: int) -> None:
        """Write the conjunction of a rule's conditions."""
        first, last = self.rules.bounds(rule)
        xml = self.fields.xml
        if first == last:
            xml.write_element("True")
            return
        if last - first > 1:
            xml.begin_element("CompoundPredicate", {"booleanOperator": "and"})
        for at in range(first, last):
            self._write_condition(at)
        if last - first > 1:
            xml.end_element()

    def _write_condition(self, at: int) -> None:
        column, fields, xml = self.column[at], self.fields, self.fields.xml
        nominal = fields.schema.columns[column].kind == "nominal"
        levels = [
            fields.schema.columns[column].levels[c] for c in self.rules.conditions.list_codes(at)[0]
        ]
        known = bool(levels) if nominal else self.known[at]
        if self.missing[at]:
            if not known:
                self._write_missing_test(column, nominal)
                return
            xml.begin_element("CompoundPredicate", {"booleanOperator": "or"})
            self._write_missing_test(column, nominal)
        if nominal:
            fields.write_membership(column, levels)
        elif not known:
            xml.write_element("False")
        else:
            self._write_interval(column, self.low[at], self.high[at])
        if self.missing[at]:
            xml.end_element()

    def _write_missing_test(self, column: int, nominal: bool) -> None:
        """Write the test for a missing value: always true for a column without categories."""
        if nominal and not self.fields.schema.columns[column].levels:
            self.fields.xml.write_element("True")
        else:
            self.fields.write_comparison(column, "isMissing")

    def _write_interval(self, column: int, low: float, high: float) -> None:
        fields, both = self.fields, np.isfinite(low) and np.isfinite(high)
        if both:
            fields.xml.begin_element("CompoundPredicate", {"booleanOperator": "and"})
        if np.isfinite(low):
            fields.write_comparison(column, "greaterThan", repr(low))
        if np.isfinite(high):
            fields.write_comparison(column, "lessOrEqual", repr(high))
        if both:
            fields.xml.end_element()
        elif not (np.isfinite(low) or np.isfinite(high)):
            fields.write_comparison(column, "isNotMissing")


# ---------------------------------------------------------------- xml
# XML written in pieces and escaped by the standard library.

_INVALID_CHARACTER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_xml_text(text: str) -> bool:
    """Check whether XML 1.0 can represent a text (section 2.2, Char)."""
    return not _INVALID_CHARACTER.search(text)


def escape_unprintable(text: str) -> str:
    r"""Escape characters that are not printable as ``\uXXXX`` or ``\UXXXXXXXX``, for display."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else (f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}")
        for c in text
    )


class XmlWriter:
    """Streaming XML writer; `take_text` returns the text written since the last call.

    Names of elements and attributes must be valid XML; text and values may be anything that
    XML `is_xml_text`.
    """

    def __init__(self) -> None:
        self._parts = ['<?xml version="1.0" encoding="UTF-8"?>']
        self._open_elements: list[str] = []

    def begin_element(self, name: str, attributes: Mapping[str, str] | None = None) -> None:
        """Open an element on a new line."""
        self._parts.append(self._format_tag(name, attributes) + ">")
        self._open_elements.append(name)

    def end_element(self) -> None:
        """Close the last open element."""
        self._parts.append(f"</{self._open_elements.pop()}>")

    def write_element(
        self, name: str, text: str = "", attributes: Mapping[str, str] | None = None
    ) -> None:
        """Write an element with text only, or an empty one."""
        tag = self._format_tag(name, attributes)
        ended = f">{_escape_to_references(escape(text))}</{name}>" if text else "/>"
        self._parts.append(tag + ended)

    def _format_tag(self, name: str, attributes: Mapping[str, str] | None) -> str:
        tag = f"\n{' ' * len(self._open_elements)}<{name}"
        if attributes:
            tag += "".join(
                f" {key}={_escape_to_references(quoteattr(text))}"
                for key, text in attributes.items()
            )
        return tag

    def take_text(self) -> str:
        """Return the text not yet taken, and clear it."""
        text = "".join(self._parts)
        self._parts.clear()
        return text


def _escape_to_references(escaped: str) -> str:
    """Replace characters that are not printable by character references (section 4.1).

    Parsers turn a bare carriage return into a line end (section 2.11), and direction controls
    would mislead a reader of the file.
    """
    if escaped.isprintable():
        return escaped
    return "".join(c if c.isprintable() or c in "\t\n" else f"&#{ord(c)};" for c in escaped)
