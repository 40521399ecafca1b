"""One tree as code that people read: nested tests on named columns, and nothing else.

Other models, and the complete interface (tables of rows, leaves, all columns), are written
by the other forms of a language.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from treekit.data.features import LevelIndex
from treekit.data.schema import Schema, level_text
from treekit.errors import ExportError
from treekit.export.literals import (
    PLAIN_CHARACTERS,
    Code,
    Language,
    WordStyle,
    list_shipped_folders,
)
from treekit.export.lowering import LoweredTree, Step
from treekit.model.links import convert_sums
from treekit.model.model import Model, hash_model, predict_labels

MAX_NODES = 200
"""Maximum number of nodes of a tree that is written for readers."""

MAX_NESTING = 24
"""Maximum nesting depth of the tests."""

_MAX_CLASSES = 10
"""Maximum number of classes that the first line lists."""

_MAX_LABEL = 2.0**53
"""Labels up to this size are the same number in every language."""


class ReadableLine(NamedTuple):
    """A test, or the prediction of a leaf; templates indent it by `depth`.

    A test that fails continues with the next line of the same depth.

    Attributes
    ----------
    kind : {"at_most", "among", "missing", "leaf"}
    depth : int
    column : Code
        Identifier of the column that a test reads.
    threshold : Code
        Literal of an ``at_most`` test, for cells of the model's input type: the shortest
        decimal, as in the rules, that is read as double and rounded to the same number.
    exact : bool
        Whether the decimal is the threshold, also without rounding.
    or_missing : bool
        Whether a missing value passes an ``at_most`` test.
    levels : tuple of Code
        Literals of the categories that pass an ``among`` test.
    prediction : Code
        Literal of the label or number of a leaf.
    title : Code
        The categories or the label as text for a comment, if a literal has escapes.
    share : Code
        Share of the predicted class in a leaf, for a comment; empty for numbers.
    closing : tuple of int
        Depths of the tests whose blocks end before the line, the innermost first.
    """

    kind: Literal["at_most", "among", "missing", "leaf"]
    depth: int
    column: Code = Code()
    threshold: Code = Code()
    exact: bool = True
    or_missing: bool = False
    levels: tuple[Code, ...] = ()
    prediction: Code = Code()
    title: Code = Code()
    share: Code = Code()
    closing: tuple[int, ...] = ()


def explain_unreadable(model: Model, trees: Sequence[LoweredTree]) -> str:
    """Return the reason why a model has no readable form; empty if it has one."""
    schema = model.schema
    if model.n_trees > 1:
        return f"the model has {model.n_trees} trees"
    if model.missing == "fractional":
        return "rows with missing values take several branches"
    if "error" in (model.missing, model.unknown):
        return "the model refuses missing or unseen values of any column"
    if schema.more:
        return "the model has several targets"
    if model.derived.n_columns:
        return "the model tests several columns at once"
    labels = [label for label in schema.classes if not isinstance(label, str)]
    if max(map(abs, labels), default=0) > _MAX_LABEL:
        return "classes are numbers beyond 2**53"
    (tree,) = trees
    if tree.n_nodes > MAX_NODES:
        return f"the tree has more than {MAX_NODES} nodes"
    tested = set(tree.feature[tree.kind != Step.LEAF].tolist())
    for f in sorted(tested):
        column = schema.columns[f]
        if any(map(_is_value_text, column.levels)) or LevelIndex(column.levels).aliases:
            return "categories are numbers or bools, which have other notations"
    if max(place.depth for place, _ in _order_nodes(tree, schema)) > MAX_NESTING:
        return f"tests are nested more than {MAX_NESTING} deep"
    return ""


def _is_value_text(level: str) -> bool:
    """Return whether a category is the text of a number or bool, see `level_text`."""
    if level in ("False", "True"):
        return True
    try:
        number = int(level) if level.lstrip("-").isdigit() else float(level)
    except ValueError:
        return False
    return level_text(number) == level


def explain_replaced(folders: Sequence[Path], name: str) -> str:
    """Return the reason why a user's templates of a language are not for the readable form."""
    shipped = list_shipped_folders()
    found = [
        path.name for own in folders if own not in shipped for path in (own / name).glob("*.jinja")
    ]
    replaced = found and not any(file.startswith("readable") for file in found)
    return "templates of the complete interface are replaced" if replaced else ""


def require_readable(form: str, reason: str) -> str:
    """Return `reason`, why a model has no readable form; refuse it if that form was set."""
    if form == "readable" and reason:
        raise ExportError(
            f"form='readable' takes one small tree, and {reason}: choose form='auto' or 'full'"
        )
    return reason


def add_reason(form_reason: Code, unreadable: str) -> Code:
    """Append to `form_reason` why the model has no readable form; `unreadable` may be empty."""
    return form_reason + Code(f"{UNREADABLE}{unreadable}") if unreadable else form_reason


UNREADABLE = "; no readable form: "
"""Start of the reason why a model has no readable form, in the line that states its form."""


class _Place(NamedTuple):
    """A node in the order of the source, its depth, and the categories left of each column."""

    node: int
    depth: int
    left: dict[int, frozenset[int]]


def _order_nodes(tree: LoweredTree, schema: Schema) -> Iterator[tuple[_Place, list[int]]]:
    """Yield the nodes in order of the source, with the categories that pass a test."""
    waiting = [_Place(0, 0, {})]
    while waiting:
        place = waiting.pop()
        node, depth, left = place
        kind, f = tree.kind[node], int(tree.feature[node])
        yes, no = int(tree.yes[node]), int(tree.no[node])
        if kind == Step.LEAF:
            yield place, []
            continue
        known = left.get(f, frozenset(range(len(schema.columns[f].levels))))
        passing = known & set(tree.codes(node).tolist()) if kind == Step.IN else known
        nominal = schema.columns[f].kind == "nominal"
        if kind == Step.MISSING and nominal:
            yes, no = no, yes  # test for the known categories
        if nominal and not passing:  # of no row that comes here
            waiting.append(_Place(no, depth, left))
            continue
        yield place, sorted(passing)
        rest = left | {f: known - passing} if passing else left
        waiting += [_Place(no, depth, rest), _Place(yes, depth + 1, left)]


def readable_values(
    model: Model, tree: LoweredTree, stem: str, language: Language
) -> dict[str, Any]:
    """Compute the template values of the readable form of a model that has one.

    Returns
    -------
    dict
        ``lines``: `ReadableLine` records; ``columns``: the tested columns, records of
        ``number`` (from 1), ``name`` (literal), ``title`` (text for a comment), ``identifier``,
        ``nominal`` and ``levels``; ``target``, ``classes``: texts for comments;
        ``label_type``: as in `treekit.export.template_values`; ``missing``: the cells that are
        missing, for a comment; ``tests_missing``: whether a
        numeric test reads whether a cell is missing; ``numeric``, ``nominal``: whether a tested
        column is; ``single``: whether cells are float32; ``digest``: of the model;
        ``stem``: identifier similar to the file name; ``reason``: of the form.
    """
    schema = model.schema
    order = list(_order_nodes(tree, schema))
    tested = sorted({int(tree.feature[place.node]) for place, _ in order} - {-1})
    names = readable_names([schema.names[f] for f in tested], language, [f + 1 for f in tested])
    nominal = {schema.columns[f].kind == "nominal" for f in tested}
    identifiers = dict(zip(tested, names, strict=True))
    missing = (
        ("NaN is a missing number", False in nominal),
        ("any other text is a missing or unseen category", True in nominal),
    )
    lines: list[ReadableLine] = []
    for place, passing in order:
        line = _make_line(model, tree, place, passing, identifiers, language)
        above = lines[-1].depth if lines else 0
        lines.append(line._replace(closing=tuple(range(above - 1, line.depth - 1, -1))))
    return {
        "lines": lines,
        "columns": [
            {
                "number": f + 1,
                "name": write_text(schema.names[f], language),
                "title": comment_text(schema.names[f]),
                "identifier": identifiers[f],
                "nominal": schema.columns[f].kind == "nominal",
                "levels": [write_text(level, language) for level in schema.columns[f].levels],
            }
            for f in tested
        ],
        "target": comment_text(schema.target),
        "classes": [comment_text(str(label)) for label in schema.classes[:_MAX_CLASSES]]
        + [Code("...")] * (len(schema.classes) > _MAX_CLASSES),
        "label_type": Code(type(schema.classes[0]).__name__ if schema.classes else "float"),
        "numeric": int(False in nominal),
        "nominal": int(True in nominal),
        "single": int(schema.dtype == "float32"),
        "digest": Code(hash_model(model)[:_DIGEST_LENGTH]),
        "stem": language.name(stem, "model"),
        "missing": Code("; ".join(text for text, there in missing if there)),
        "tests_missing": any(line.or_missing or line.kind == "missing" for line in lines),
        "reason": comment_text(f"the tree has {tree.n_nodes} nodes"),
    }


def readable_names(
    names: Sequence[str], language: Language, positions: Sequence[int]
) -> list[Code]:
    """Make distinct identifiers of columns that read like their names.

    Letters of all scripts stay where the language has such identifiers.  Names that become
    equal, or nothing, are numbered by position; reserved words end in an underscore.
    """
    clean = [_clean_name(name, language) for name in names]
    counts = Counter(clean)
    made: dict[str, None] = {}  # in order
    for position, text in zip(positions, clean, strict=True):
        distinct = counts[text] == 1 and text != "column"
        name = text if distinct else f"{text}_{position}"
        while name in made or (name != text and name in counts):
            name += "_"
        made[name] = None
    return [Code(name) for name in made]


def _clean_name(name: str, language: Language) -> str:
    text = unicodedata.normalize("NFKC", name.lower()) if language.unicode else name.lower()
    kept = "".join(c if _is_plain(c) and (language.unicode or c.isascii()) else "_" for c in text)
    kept = "_".join(filter(None, kept.split("_")))[:_MAX_NAME].strip("_") or "column"
    if not kept.isidentifier():  # it starts with a digit, or holds one of another script
        kept = f"column_{kept}" if f"x{kept}".isidentifier() else "column"
    made = _join_words(kept.split("_"), language.words)
    return f"{made}_" if made in language.reserved | language.members else made


def _join_words(words: Sequence[str], style: WordStyle) -> str:
    """Join words to an identifier, which in Go starts with a capital letter if it is exported."""
    if style == "snake":
        return "_".join(words)
    # A letter whose capital is several letters stays as it is.
    titles = [
        (word[:1].upper() if len(word[:1].upper()) == 1 else word[:1]) + word[1:] for word in words
    ]
    if style == "camel":
        return "".join([*words[:1], *titles[1:]])
    return "".join(titles if titles[0][:1].isupper() else ["X", *titles])


def _is_plain(character: str) -> bool:
    """Whether a character may be in identifiers of every language with those of all scripts."""
    return character.isalpha() or character.isdecimal()


_MAX_NAME = 40
_DIGEST_LENGTH = 12


def write_text(text: str, language: Language) -> Code:
    """Write a string literal, with letters of other scripts as they are where that is safe.

    Older Java compilers read a source in the encoding of the machine, and escapes are safe.
    """
    plain = all(_is_plain(c) or c in PLAIN_CHARACTERS for c in text)
    if language.unicode and language.strings != "java" and plain:
        return Code(f'"{text}"')
    return language.text(text)


def comment_text(text: str) -> Code:
    """Return a text for a comment: plain characters of one line, others as ``?``.

    A name cannot end a comment or a docstring, in any language.
    """
    kept = "".join(c if c.isalnum() or c in " _-.,()<>=+%:;" else "?" for c in text)
    return Code(" ".join(kept.split())[:80])


def _make_line(
    model: Model,
    tree: LoweredTree,
    place: _Place,
    passing: list[int],
    identifiers: dict[int, Code],
    language: Language,
) -> ReadableLine:
    node, depth, _ = place
    kind, feature = Step(int(tree.kind[node])), int(tree.feature[node])
    if kind == Step.LEAF:
        return _make_leaf(model, int(tree.leaf[node]), depth, language)
    column, name = model.schema.columns[feature], identifiers[feature]
    if kind == Step.LE:
        or_missing = bool(tree.missing_yes[node])
        if model.schema.dtype == "float64":
            double = language.number(float(tree.threshold[node]))
            return ReadableLine("at_most", depth, name, double, or_missing=or_missing)
        number = np.float32(tree.threshold[node])
        text = str(number)
        if np.float32(float(text)) != number:
            text = repr(float(number))
        threshold, exact = Code(text.replace("e+", "e")), float(text) == float(number)
        return ReadableLine("at_most", depth, name, threshold, exact, or_missing)
    levels = tuple(write_text(column.levels[code], language) for code in passing)
    texts = [column.levels[code] for code in passing]
    title = _explain_escapes(levels, texts)
    return ReadableLine("among" if levels else "missing", depth, name, levels=levels, title=title)


def _make_leaf(model: Model, leaf: int, depth: int, language: Language) -> ReadableLine:
    units = model.units[leaf : leaf + 1]
    numbers = convert_sums(model, units)[0]
    if model.schema.task == "regression":
        return ReadableLine("leaf", depth, prediction=language.number(float(numbers[0])))
    label = int(predict_labels(units, model.label_costs)[0])
    share = Code(f"share {numbers[label]:.3g}")
    given = model.schema.classes[label]
    value = write_text(given, language) if isinstance(given, str) else language.value(given)
    title = _explain_escapes([value], [str(given)])
    return ReadableLine("leaf", depth, prediction=value, title=title, share=share)


def _explain_escapes(literals: Sequence[Code], texts: Sequence[str]) -> Code:
    """Return the texts for a comment if a literal has escapes, else nothing."""
    escaped = any("\\" in literal for literal in literals)
    return comment_text(", ".join(texts)) if escaped else Code()
