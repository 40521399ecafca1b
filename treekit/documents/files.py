"""Rules in files: written in a form, edited by a person, and read back as a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treekit.documents import FORMS, listing, written
from treekit.documents.read_json import read_json
from treekit.errors import DataError
from treekit.export import write_files
from treekit.model.model import Model
from treekit.rules import language as languages
from treekit.rules.language import Language, known_languages
from treekit.rules.read_edited import read_edited
from treekit.rules.revise import revised
from treekit.rules.rule_list import RuleList

__all__ = [
    "edited_rules",
    "form_of",
    "revise",
    "write_rules",
]


def form_of(path: str | Path, default: str = "text") -> str:
    """The form that the name of a file asks for by its suffix, or `default`."""
    suffix = Path(path).suffix.lower()
    return next((name for name, form in FORMS.items() if form.suffix == suffix), default)


def write_rules(
    source: Model | RuleList,
    path: str | Path,
    form: str | None = None,
    *,
    language: str | Language = "en",
    **options: Any,
) -> Path:
    """Write the rules of a model to a file.

    Parameters
    ----------
    source : Model or RuleList
    path : str or Path
        Missing folders are made; a file that is there is replaced, whole or not at all.
    form : str, optional
        One of `treekit.documents.FORMS`; by default what the suffix of `path` says (``.md``,
        ``.html``, ``.json``, ``.csv``, ``.sql``, ``.dmn``, ``.pmml``), else text.
    language : str or Language
        Code, or a catalogue file that ends with ``.toml``.
    **options
        As `treekit.documents.listing` takes them: `table`, `tree`, `title`, `table_name`.

    Returns
    -------
    Path

    Raises
    ------
    SettingError
        If there is no such form or language, or the form cannot say these rules.
    """
    place = Path(path)
    made = written(form or form_of(place), listing(source, words=language, **options))
    write_files(place.parent, {place.name: b"".join(piece.encode() for piece in made)})
    return place


def edited_rules(path: str | Path, language: str | Path | Language = "en") -> RuleList:
    """The rules in a file that a person has edited: JSON, by its suffix, or text.

    Parameters
    ----------
    path : str or Path
    language : str, Path or Language
        Needed for a text in the words of a catalogue of one's own; a text in a language that
        treekit brings names it.

    Raises
    ------
    ModelFileError
        For what cannot be read; names the line, or the place in the JSON.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is no text in UTF-8; save it as such") from error
    if Path(path).suffix.lower() == ".json":
        return read_json(text)
    words = languages.language(language)
    return read_edited(text, words if words.code not in known_languages() else None)


def revise(
    model: Model,
    path: str | Path,
    *,
    table: Any = None,
    language: str | Path | Language = "en",
) -> Model:
    """The model that answers as rules of `model` say that a person has edited.

    >>> treekit.write_rules(model, "melons.txt")
    >>> # melons.txt is edited: a threshold, a label, a new rule on top, ...
    >>> treekit.revise(model, "melons.txt").save("revised.treekit")

    Parameters
    ----------
    model : Model
        What the rules were written of.
    path : str or Path
        Text, or JSON where the name ends with ``.json``.
    table : table, optional
        With targets: what rules of new conditions are measured on; else nothing stands
        behind them.
    language : str, Path or Language
        See `edited_rules`.

    Raises
    ------
    ModelFileError
        For what cannot be read; names the line.
    DataError, ModelError
        See `treekit.rules.revise.revised`.
    """
    return revised(model, edited_rules(path, language), table)
