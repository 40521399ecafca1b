"""Reading and writing of rule files: write in a form, edit by hand, read back as a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treekit import registry
from treekit.contracts import Document
from treekit.documents import make_listing, render_listing
from treekit.documents.dataframe import list_table_heads
from treekit.documents.json_rules import read_json
from treekit.errors import DataError, SettingError
from treekit.export import write_files
from treekit.model.model import Model
from treekit.rules.clean_text import decode_text
from treekit.rules.language import Language
from treekit.rules.read_text import read_edited
from treekit.rules.revise import revise_model
from treekit.rules.rule_list import RuleList


def infer_form(path: str | Path) -> str:
    """Return the form whose suffix a file name has, the longest first; text without a suffix.

    Raises
    ------
    SettingError
        If no form has the suffix.
    """
    name = Path(path).name.lower()
    forms = [c.record for c in registry.components("document") if isinstance(c.record, Document)]
    found = [form for form in forms if name.endswith(form.suffix)]
    if found:
        return max(found, key=lambda form: len(form.suffix)).name
    if suffix := Path(name).suffix:
        if absence := registry.explain_absence("document", suffix[1:]):
            raise SettingError(f"cannot write rules to {str(path)!r}: {absence}")
        known = ", ".join(sorted({form.suffix for form in forms}))
        raise SettingError(
            f"cannot write rules to {str(path)!r}: unknown suffix {suffix!r}; use one of {known}, "
            "or name the form"
        )
    return "text"


def check_replaceable(path: Path) -> None:
    """Check that writing rules to `path` replaces no CSV file other than a table of rules.

    Raises
    ------
    DataError
        If it would, such as the training table.
    """
    if path.suffix.lower() != ".csv" or not path.is_file():
        return
    starts = [",".join(head) + "," for head in list_table_heads()]
    with path.open("rb") as stream:
        start = stream.read(256).decode("utf-8-sig", errors="replace")
    if start and not start.startswith(tuple(starts)):
        raise DataError(
            f"{str(path)!r} exists and is not a table of rules: its first line does not begin with "
            f"{' or '.join(map(repr, starts))}; choose another name, or delete the file"
        )


def write_rules(
    source: Model | RuleList,
    path: str | Path,
    form: str | None = None,
    *,
    language: str | Language = "en",
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Write the rules of a model to a file.

    Parameters
    ----------
    source : Model or RuleList
    path : str or Path
        Missing folders are created; an existing file is replaced atomically, but a CSV file only
        if it is a table of rules.
    form : str, optional
        An installed document form; inferred by default from the suffix of `path` (``.md``,
        ``.html``, ``.json``, ``.csv``, ...); text without a suffix.
    language : str or Language
        Language, or its code: en or zh.
    settings : mapping, optional
        Settings of the form; ``treekit plugins`` lists them.
    **options
        Parameters of `treekit.documents.make_listing`: `table`, `tree`, `title`, `table_name`.

    Returns
    -------
    Path

    Raises
    ------
    SettingError
        If the form, the suffix or the language is unknown, or the form cannot represent these
        rules.
    DataError
        If `path` is an existing CSV file other than a table of rules.
    """
    place = Path(path)
    check_replaceable(place)
    document = registry.get("document", form or infer_form(place))
    made = render_listing(
        document,
        make_listing(source, words=language, measured=document.measured, **options),
        **(settings or {}),
    )
    write_files(place.parent, {place.name: b"".join(piece.encode() for piece in made)})
    return place


def load_edited_rules(path: str | Path) -> RuleList:
    """Read the rules of an edited file, JSON or text by its first line.

    Raises
    ------
    ModelFileError
        If the file cannot be parsed; names the line, or the path in the JSON.
    DataError
        If it is not text, not in Unicode, or a table of rules.
    """
    text = decode_text(Path(path).read_bytes(), str(path))
    start = text.lstrip('\ufeff"').partition("\n")[0]
    if start.startswith("sep=") or _is_table_head(start):
        raise DataError(
            f"{str(path)!r} is a table of rules (CSV), which is not read back: edit the rules as "
            "text or JSON (treekit rules MODEL -o FILE.txt)"
        )
    is_json = text.lstrip("\ufeff \t\r\n").startswith("{")
    if is_json or (Path(path).suffix.lower() == ".json" and not start.startswith("treekit rules")):
        return read_json(text)
    return read_edited(text)


def _is_table_head(line: str) -> bool:
    """Return whether a line is the first of a table of rules, with any separator and quotes."""
    heads = (r"\W{1,3}".join(map(re.escape, head)) for head in list_table_heads())
    return any(re.match(head + r"\W", line) for head in heads)


def revise(
    model: Model,
    path: str | Path,
    *,
    table: Any = None,
) -> Model:
    """Return a model that predicts as the edited rules of `model` do.

    >>> treekit.write_rules(model, "melons.txt")
    >>> # melons.txt is edited: a threshold, a label, a new rule on top, ...
    >>> treekit.revise(model, "melons.txt").save("revised.treekit")

    Parameters
    ----------
    model : Model
        Model that the rules were written from.
    path : str or Path
        Text, or JSON.
    table : table, optional
        Rows with targets, to measure rules with new conditions; without it these rules have
        no support.

    Raises
    ------
    ModelFileError
        If the file cannot be parsed; names the line.
    DataError, ModelError
        See `treekit.rules.revise.revise_model`.
    """
    return revise_model(model, load_edited_rules(path), table)
