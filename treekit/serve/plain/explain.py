"""Questions about one row, as JSON, and their answers in the words of `treekit explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from treekit.data.schema import level_text
from treekit.data.table import make_table, objects
from treekit.errors import DataError, SettingError
from treekit.rules.language import known_languages, language
from treekit.serve.errors import InvalidRequestError, TooLargeError
from treekit.serve.plain.bodies import near, quoted, read_json, read_object

if TYPE_CHECKING:
    from treekit.model.model import Model
    from treekit.serve.models.served import Served
    from treekit.serve.plain.rows import Rows

__all__ = ["explained", "language_of", "read_question"]

_LONG_TEXT = 10_000

_MOST_BYTES = 1 << 19
"""Of a question: each cell is told several times, and in the words of a person."""

_PAIRS = 5_000_000
"""Cells that a search for changes of two columns looks at: below a second."""

_FIELDS: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "version": (str,),
    "row": (dict,),
    "lang": (str,),
    "tree": (int,),
    "changes": (int,),
    "wish": (str, int, float, bool),
    "target": (str,),
    "fixed": (list,),
}


def read_question(body: bytes | bytearray) -> dict[str, Any]:
    """The fields of a question, of the types they have to be of.

    Raises
    ------
    InvalidRequestError
        Names what is none, or missing.
    TooLargeError
        For a row of cells that nobody would read.
    """
    if len(body) > _MOST_BYTES:
        raise TooLargeError(
            f"the body is longer than the {_MOST_BYTES:,} bytes of a row that can be explained"
        )
    given = read_object(read_json(body), _FIELDS, "the body")
    if "row" not in given:
        raise InvalidRequestError("the body has no 'row'; write {\"row\": {...}}")
    return given


def explained(served: Served, model: Model, rows: Rows, given: dict[str, Any]) -> bytes:
    """The answer to a question, as JSON; to be called in a thread.

    Raises
    ------
    InvalidRequestError
        For a row that does not fit, and for a tree, wish, target, column or language that
        is not there.
    """
    from treekit.explain import explain

    row, words = given["row"], language(language_of(given.get("lang", "en")))
    rows.check(row)
    options = _options(given, model.n_trees)
    names = model.schema.names
    try:
        table = make_table(names, [objects([row[name]]) for name in names])
        found = explain(model, table, budget=_PAIRS, **options)
    except (DataError, SettingError) as error:
        raise InvalidRequestError(f"model {served.name!r}: {error}") from error
    return msgspec.json.encode(
        {
            "model": served.name,
            "version": served.version,
            "explanation": found.plain(),
            "text": list(found.lines(words)),
        }
    )


def language_of(code: str) -> str:
    """The code of a language that treekit brings; never the name of a file."""
    if code in known_languages():
        return code
    raise InvalidRequestError(
        f"there is no language {quoted(code)}; {near(code, known_languages())}"
    )


def _options(given: dict[str, Any], n_trees: int) -> dict[str, Any]:
    """What `treekit.explain.explain` is told."""
    options: dict[str, Any] = {"changes": given.get("changes", 1), "fixed": given.get("fixed", ())}
    for name in options["fixed"]:
        if type(name) is not str or len(name) > _LONG_TEXT:
            raise InvalidRequestError(f"'fixed' lists names of columns, and holds {quoted(name)}")
    if "tree" in given:
        if not 1 <= given["tree"] <= n_trees:
            raise InvalidRequestError(
                f"there is no tree {quoted(given['tree'])}; they are 1 to {n_trees}"
            )
        options["tree"] = given["tree"] - 1
    if options["changes"] not in (0, 1, 2):
        raise InvalidRequestError(f"'changes' is 0, 1 or 2, not {quoted(options['changes'])}")
    if "wish" in given:
        options["wish"] = level_text(given["wish"])
    if "target" in given:
        options["target"] = given["target"]
    for name in ("wish", "target"):
        if len(options.get(name) or "") > _LONG_TEXT:
            raise InvalidRequestError(f"{name!r} has more than {_LONG_TEXT:,} characters")
    return options
