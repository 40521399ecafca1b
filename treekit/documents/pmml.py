"""A model's trees as PMML 4.4: a TreeModel, or a MiningModel that sums several exactly.

Of one tree the leaves say labels and probabilities, or numbers.  Of a forest the answer is
made of whole votes: for each class but one a sum of trees that answer that class's votes,
then a regression without link (normalisation ``simplemax``) that divides them once.  Numbers
of several trees are averaged, or summed: they are multiples of one step, so no sum is rounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from treekit.data.schema import Label, Schema
from treekit.documents.layout import label_codes, shares
from treekit.errors import SettingError
from treekit.model.fixed_point import double_threshold
from treekit.model.model import least_cost
from treekit.model.tree import Split, Tree
from treekit.rules.rule_list import RuleList

if TYPE_CHECKING:
    from treekit.documents import Listing
    from treekit.model.model import Model

__all__ = [
    "TARGETS",
    "Distribution",
    "Fields",
    "Xml",
    "holds",
    "label_text",
    "model_pieces",
    "ruleset_pieces",
    "tree_nodes",
    "visible",
]


# ---------------------------------------------------------------- pmml

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


# ---------------------------------------------------------------- pmml fields
# What every PMML 4.4 document of rules says before its model: fields, policies, predicates.
#
# PMML's numbers are doubles here, whatever the model's input type: a bound is the largest
# double that the model's own comparison takes (see `treekit.model.fixed_point.double_threshold`),
# so that no engine has to round an input as the model does.

TARGETS = {str: "string", bool: "boolean", int: "integer", float: "double"}
_NAMESPACE = "http://www.dmg.org/PMML-4_4"
_PLAIN = frozenset(" ")


class Fields:
    """The fields of a model, and elements that name them.

    Attributes
    ----------
    names : list of str
        Of the columns.
    target : str
        The target's name, or one that no column has.
    """

    def __init__(self, xml: Xml, schema: Schema, missing: str, unknown: str) -> None:
        if schema.more:
            raise SettingError(
                f"a model of PMML has one target, and the rules have {len(schema.outputs)}: "
                "write form 'text'"
            )
        self.xml, self.schema = xml, schema
        self.missing, self.unknown = missing, unknown
        self.names = [self._held(name, "the column name") for name in schema.names]
        self.target = self.unused(self._held(schema.target, "the target's name") or "target")
        for column in schema.columns:
            for level in column.levels:
                self._held(level, f"a category of column {column.name!r}")
        self.classes = [self._held(label_text(label), "the label") for label in schema.classes]

    @staticmethod
    def _held(text: str, role: str) -> str:
        if not holds(text):
            raise SettingError(
                f"{role} {text[:80]!r} holds a character that XML 1.0 cannot: rename it"
            )
        return text

    def unused(self, name: str) -> str:
        """`name`, or a longer one that no column has."""
        while name in self.names:
            name += "_"
        return name

    def begin(self, description: str) -> None:
        """The document up to its model."""
        xml = self.xml
        xml.begin("PMML", {"xmlns": _NAMESPACE, "version": "4.4"})
        xml.begin("Header", {"description": description})
        xml.leaf("Application", "", {"name": "treekit"})
        xml.end()
        xml.begin("DataDictionary", {"numberOfFields": str(len(self.names) + 1)})
        for name, column in zip(self.names, self.schema.columns, strict=True):
            if column.kind == "numeric":
                self._field(name, "continuous", "double", ())
                continue
            if not column.levels and "error" in (self.missing, self.unknown):
                raise SettingError(
                    f"column {name!r} has no category that PMML could call valid, and the rules "
                    "refuse what is not: write form 'text'"
                )
            self._field(name, "categorical", "string", column.levels)
        if self.schema.classes:
            kind = TARGETS[type(self.schema.classes[0])]
            self._field(self.target, "categorical", kind, self.classes)
        else:
            self._field(self.target, "continuous", "double", ())
        xml.end()

    def _field(self, name: str, optype: str, kind: str, values: Sequence[str]) -> None:
        self.xml.begin("DataField", {"name": name, "optype": optype, "dataType": kind})
        for value in values:
            self.xml.leaf("Value", "", {"value": value})
        self.xml.end()

    def mining_schema(self, target: str | None = None) -> None:
        """The fields that a model takes, and what the policies make of missing and unknown."""
        self.xml.begin("MiningSchema")
        if target != "":
            told = {"name": target or self.target, "usageType": "target"}
            self.xml.leaf("MiningField", "", told)
        for name in self.names:
            told = {"name": name}
            told["invalidValueTreatment"] = "returnInvalid" if self.guarded else "asMissing"
            if self.missing == "error":
                told["missingValueTreatment"] = "returnInvalid"
            self.xml.leaf("MiningField", "", told)
        self.xml.end()

    @property
    def guarded(self) -> bool:
        """Whether a policy refuses rows."""
        return "error" in (self.missing, self.unknown)

    def guard(self) -> None:
        """A predicate that looks at each field that a policy may refuse, and holds for the others.

        Engines look at a field when a predicate names it, and the trees may not name all.
        """
        columns = [
            number
            for number, column in enumerate(self.schema.columns)
            if self.missing == "error" or (self.unknown == "error" and column.kind == "nominal")
        ]
        if not columns:
            self.xml.leaf("True")
            return
        self.xml.begin("CompoundPredicate", {"booleanOperator": "and"})
        self.xml.leaf("True")  # it takes two at least
        for column in columns:
            if self.missing == "error":
                self.compared(column, "isNotMissing")
                continue
            self.xml.begin("CompoundPredicate", {"booleanOperator": "or"})
            self.compared(column, "isMissing")
            self.compared(column, "isNotMissing")
            self.xml.end()
        self.xml.end()

    def compared(self, column: int, operator: str, value: str = "") -> None:
        """A simple predicate."""
        told = {"field": self.names[column], "operator": operator}
        if operator not in ("isMissing", "isNotMissing"):
            told["value"] = value
        self.xml.leaf("SimplePredicate", "", told)

    def one_of(self, column: int, levels: Sequence[str]) -> None:
        """A predicate: one of some levels; unknown if the value is missing."""
        if not levels:
            self.xml.leaf("False")
        elif len(levels) == 1:
            self.compared(column, "equal", levels[0])
        elif all(_arrayed(level) for level in levels):
            self.xml.begin(
                "SimpleSetPredicate", {"field": self.names[column], "booleanOperator": "isIn"}
            )
            text = " ".join(f'"{level}"' for level in levels)
            self.xml.leaf("Array", text, {"type": "string", "n": str(len(levels))})
            self.xml.end()
        else:  # engines read escapes in arrays in several ways
            self.xml.begin("CompoundPredicate", {"booleanOperator": "or"})
            for level in levels:
                self.compared(column, "equal", level)
            self.xml.end()


def _arrayed(level: str) -> bool:
    """Whether a level stands between quotes as it is."""
    blanks = not _PLAIN.issuperset(c for c in level if c.isspace())
    return bool(level) and level.isprintable() and not blanks and not set('"\\') & set(level)


def label_text(label: Label) -> str:
    """A class label as the value of its type.

    Raises
    ------
    SettingError
        For a whole number that PMML's engines cannot hold.
    """
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, int) and not -(2**31) <= label < 2**31:
        raise SettingError(f"the class label {label} is beyond an integer of PMML: rename it")
    return label if isinstance(label, str) else repr(label)


# ---------------------------------------------------------------- pmml nodes
# The nodes of one tree as PMML, from the root down, without recursion.

_NODES_A_PIECE = 2048


class Distribution(NamedTuple):
    """What each leaf says of the classes."""

    labels: Sequence[str]
    shares: Sequence[Sequence[float]]
    weights: Sequence[Sequence[float]]


def tree_nodes(
    fields: Fields, tree: Tree, scores: Sequence[str], leaves: Distribution | None
) -> Iterator[str]:
    """Write the nodes; a child's predicate is unknown where the value is missing.

    Then the parent's ``defaultChild`` is taken: the side of missing values.

    Parameters
    ----------
    fields : Fields
    tree : Tree
    scores : sequence of str
        What each leaf answers, in node order.
    leaves : Distribution, optional
    """
    xml, walk = fields.xml, _Walk(fields, tree)
    leaf_of = np.cumsum(tree.kind == Split.LEAF) - 1
    kind, first, count = tree.kind.tolist(), tree.first_child.tolist(), tree.n_children.tolist()
    weight, written = tree.weight.tolist(), 0
    stack: list[tuple[int, int, int]] = [(0, -1, 0)]
    while stack:
        node, parent, branch = stack.pop()
        if node < 0:
            xml.end()
            continue
        told = {"id": str(node)}
        if kind[node] == Split.LEAF:
            told["score"] = scores[leaf_of[node]]
        elif kind[node] != Split.MISSING:
            told["defaultChild"] = str(first[node] + int(tree.missing[node]))
        xml.begin("Node", {**told, "recordCount": repr(weight[node])})
        walk.predicate(parent, branch)
        if kind[node] == Split.LEAF and leaves is not None:
            at = int(leaf_of[node])
            for label, share, own in zip(
                leaves.labels, leaves.shares[at], leaves.weights[at], strict=True
            ):
                said = {"value": label, "recordCount": repr(own), "probability": repr(share)}
                xml.leaf("ScoreDistribution", "", said)
        stack.append((-1, -1, 0))
        stack += [(first[node] + b, node, b) for b in range(count[node] - 1, -1, -1)]
        written += 1
        if written % _NODES_A_PIECE == 0:
            yield xml.take()
    yield xml.take()


class _Walk:
    """The predicates of the branches of a tree."""

    def __init__(self, fields: Fields, tree: Tree) -> None:
        self.fields, self.tree = fields, tree
        finite = np.where(tree.kind == Split.THRESHOLD, tree.threshold, 0.0)
        single = fields.schema.dtype == "float32"
        self.threshold = (double_threshold(finite) if single else finite).tolist()

    def predicate(self, node: int, branch: int) -> None:
        """What a row must meet that goes from `node` to its `branch`."""
        fields = self.fields
        if node < 0:
            fields.guard()
            return
        kind, column = self.tree.kind[node], int(self.tree.feature[node])
        asked = fields.schema.columns[column]
        if asked.kind == "nominal" and not asked.levels:  # every value is missing
            missing = 0 if kind == Split.MISSING else self.tree.missing[node]
            fields.xml.leaf("True" if branch == missing else "False")
        elif kind == Split.THRESHOLD:
            operator = "greaterThan" if branch else "lessOrEqual"
            fields.compared(column, operator, repr(self.threshold[node]))
        elif kind == Split.MISSING:
            fields.compared(column, "isNotMissing" if branch else "isMissing")
        else:
            first, last = self.tree.level_start[node : node + 2].tolist()
            goes = self.tree.level_branch[first:last]
            goes = np.where(goes < 0, self.tree.missing[node], goes)
            fields.one_of(column, [asked.levels[c] for c in np.flatnonzero(goes == branch)])


# ---------------------------------------------------------------- pmml rules
# A list of one tree, or an ordered list, as a RuleSetModel of PMML 4.4.
#
# The first rule whose predicate is true answers (selection ``firstHit``): of rules that do not
# overlap the only one.

_RULES_A_PIECE = 1024


def ruleset_pieces(listing: Listing) -> Iterator[str]:
    """The XML of `listing`; a rule's id is its number, from 1.

    Raises
    ------
    SettingError
        For what a rule set cannot say: numbers, several trees or targets, divided rows, and
        tests beyond single columns.
    """
    rules = listing.rules
    _check_rules(rules)
    xml = Xml()
    fields = Fields(xml, rules.schema, rules.missing, rules.unknown)
    fields.begin(visible(listing.title or rules.schema.target))
    told = {"functionName": "classification", "algorithmName": "treekit"}
    xml.begin("RuleSetModel", told)
    fields.mining_schema()
    _outputs(fields)
    xml.begin("RuleSet")
    xml.leaf("RuleSelectionMethod", "", {"criterion": "firstHit"})
    if fields.guarded:
        xml.begin("CompoundRule")
        fields.guard()
    predicates = _Predicates(rules, fields)
    codes, parts = label_codes(rules)[0].tolist(), shares(rules)
    support = rules.support.tolist()
    for number, code in enumerate(codes):
        own = parts[number].tolist()
        told = {"id": str(number + 1), "score": fields.classes[code]}
        told |= {"recordCount": repr(support[number]), "confidence": repr(own[code])}
        xml.begin("SimpleRule", told)
        predicates.write(number)
        for label, part in zip(fields.classes, own, strict=True):
            weight = {"recordCount": repr(part * support[number]), "probability": repr(part)}
            xml.leaf("ScoreDistribution", "", {"value": label, **weight})
        xml.end()
        if number % _RULES_A_PIECE == 0:
            yield xml.take()
    for _ in range(4 if fields.guarded else 3):
        xml.end()
    yield xml.take() + "\n"


def _check_rules(rules: RuleList) -> None:
    if rules.schema.task == "regression" or rules.margins:
        raise SettingError(
            "a rule set of PMML answers classes, and these rules say numbers to be added or "
            "answered: write form 'pmml' of a tree of numbers, else 'text'"
        )
    if rules.n_trees > 1:
        raise SettingError(
            f"a rule set of PMML is one list, and these are the rules of {rules.n_trees} trees: "
            "write form 'pmml' of a forest, else 'text'"
        )
    if rules.mass > 1:
        raise SettingError(
            "PMML cannot divide rows as exactly as the missing policy 'fractional' does: "
            "write form 'text'"
        )
    if rules.tests:
        raise SettingError("the rules have tests beyond single columns: write form 'text'")


def _outputs(fields: Fields) -> None:
    """The answer, and the number of the rule that gives it."""
    xml = fields.xml
    xml.begin("Output")
    told = {"name": fields.unused("rule"), "optype": "categorical", "dataType": "string"}
    xml.leaf("OutputField", "", {**told, "feature": "entityId"})
    xml.end()


class _Predicates:
    """The predicates of rules."""

    def __init__(self, rules: RuleList, fields: Fields) -> None:
        self.rules, self.fields = rules, fields
        table = rules.conditions
        ends = [table.low, table.high]
        if rules.schema.dtype == "float32":
            ends = [
                np.where(
                    np.isfinite(end), double_threshold(np.where(np.isfinite(end), end, 0)), end
                )
                for end in ends
            ]
        self.low, self.high = (end.tolist() for end in ends)
        self.known, self.missing = table.known.tolist(), table.missing.tolist()
        self.column = table.column.tolist()

    def write(self, rule: int) -> None:
        """All conditions of a rule."""
        first, last = self.rules.bounds(rule)
        xml = self.fields.xml
        if first == last:
            xml.leaf("True")
            return
        if last - first > 1:
            xml.begin("CompoundPredicate", {"booleanOperator": "and"})
        for at in range(first, last):
            self._condition(at)
        if last - first > 1:
            xml.end()

    def _condition(self, at: int) -> None:
        column, fields, xml = self.column[at], self.fields, self.fields.xml
        nominal = fields.schema.columns[column].kind == "nominal"
        levels = [
            fields.schema.columns[column].levels[c] for c in self.rules.conditions.codes(at)[0]
        ]
        known = bool(levels) if nominal else self.known[at]
        if self.missing[at]:
            if not known:
                self._missing(column, nominal)
                return
            xml.begin("CompoundPredicate", {"booleanOperator": "or"})
            self._missing(column, nominal)
        if nominal:
            fields.one_of(column, levels)
        elif not known:
            xml.leaf("False")
        else:
            self._interval(column, self.low[at], self.high[at])
        if self.missing[at]:
            xml.end()

    def _missing(self, column: int, nominal: bool) -> None:
        """Whether a value is missing: always, where no category is known."""
        if nominal and not self.fields.schema.columns[column].levels:
            self.fields.xml.leaf("True")
        else:
            self.fields.compared(column, "isMissing")

    def _interval(self, column: int, low: float, high: float) -> None:
        fields, both = self.fields, np.isfinite(low) and np.isfinite(high)
        if both:
            fields.xml.begin("CompoundPredicate", {"booleanOperator": "and"})
        if np.isfinite(low):
            fields.compared(column, "greaterThan", repr(low))
        if np.isfinite(high):
            fields.compared(column, "lessOrEqual", repr(high))
        if both:
            fields.xml.end()
        elif not (np.isfinite(low) or np.isfinite(high)):
            fields.compared(column, "isNotMissing")


# ---------------------------------------------------------------- xml
# XML in pieces, escaped by the standard library, and what XML 1.0 cannot hold.

_STRANGE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def holds(text: str) -> bool:
    """Whether XML 1.0 can hold a text (section 2.2, Char)."""
    return not _STRANGE.search(text)


def visible(text: str) -> str:
    r"""`text` for a reader: what is not printable becomes ``\uXXXX`` or ``\UXXXXXXXX``."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else (f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}")
        for c in text
    )


class Xml:
    """Elements in order; `take` hands on what has been written since the last time.

    Names of elements and attributes are the caller's own; text and values may be anything
    that XML `holds`.
    """

    def __init__(self) -> None:
        self._parts = ['<?xml version="1.0" encoding="UTF-8"?>']
        self._open: list[str] = []

    def begin(self, name: str, attributes: Mapping[str, str] | None = None) -> None:
        """Open an element, on a line of its own."""
        self._parts.append(self._tag(name, attributes) + ">")
        self._open.append(name)

    def end(self) -> None:
        """Close the last open element."""
        self._parts.append(f"</{self._open.pop()}>")

    def leaf(self, name: str, text: str = "", attributes: Mapping[str, str] | None = None) -> None:
        """An element of text alone, or of nothing."""
        tag = self._tag(name, attributes)
        ended = f">{_told(escape(text))}</{name}>" if text else "/>"
        self._parts.append(tag + ended)

    def _tag(self, name: str, attributes: Mapping[str, str] | None) -> str:
        tag = f"\n{' ' * len(self._open)}<{name}"
        if attributes:
            tag += "".join(f" {key}={_told(quoteattr(text))}" for key, text in attributes.items())
        return tag

    def take(self) -> str:
        """All that is written and not yet taken."""
        text = "".join(self._parts)
        self._parts.clear()
        return text


def _told(escaped: str) -> str:
    """Escaped text with references (section 4.1) for what is not printable.

    A bare carriage return would be read as the end of a line (section 2.11), and what turns
    the direction of a line around would mislead whoever looks at the file.
    """
    if escaped.isprintable():
        return escaped
    return "".join(c if c.isprintable() or c in "\t\n" else f"&#{ord(c)};" for c in escaped)
