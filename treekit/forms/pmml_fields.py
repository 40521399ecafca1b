"""What every PMML 4.4 document of rules says before its model: fields, policies, predicates.

PMML's numbers are doubles here, whatever the model's input type: a bound is the largest
double that the model's own comparison takes (see `treekit.model.fixed_point.double_threshold`),
so that no engine has to round an input as the model does.
"""

from __future__ import annotations

from collections.abc import Sequence

from treekit.data.schema import Label, Schema
from treekit.errors import SettingError
from treekit.forms.xml import Xml, holds

__all__ = ["TARGETS", "Fields", "label_text"]

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
