"""The words of rules in the reader's language: one small catalogue file for each.

A catalogue is a TOML file of phrases with fields in braces.  A phrase is filled in once,
field by field: what a field holds is never read as a phrase, and no field can reach
beyond its own text.  A file of a user's own is untrusted: see
`treekit.rules.check_catalogue`.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from treekit.errors import SettingError

__all__ = [
    "ENGLISH",
    "FIRST_LINE",
    "GRAMMAR",
    "Language",
    "fields_of",
    "known_languages",
    "language",
]

ENGLISH = "en"
FIRST_LINE = "treekit rules, format 2"
GRAMMAR = ("fact_", "head_", "if_", "test_", "rule_")
"""Keys of the phrases that stand beside names, and are read back, begin so."""

_MAX_BYTES = 1 << 18
_MOST_DOTS = 200  # in a line: `tomllib` takes the square of a dotted key's parts
_FIELD = re.compile(r"\{([a-z_][a-z_0-9]*)\}")
_WORD = re.compile(r"[^\W\d]\w*")
# What other readers of a text could take for a number, a truth value or nothing.
_ALWAYS = frozenset(("false", "inf", "infinity", "nan", "none", "null", "treekit", "true"))


@dataclass(frozen=True, eq=False)
class Language:
    """The phrases of one language.

    Attributes
    ----------
    code : str
        As of BCP 47: ``en``, ``zh``.
    phrases : dict of str to str
        Of several lines where the catalogue has a list.
    """

    code: str
    phrases: dict[str, str]

    def say(self, key: str, **fields: str) -> str:
        """The phrase of `key` with each ``{field}`` replaced."""
        return _FIELD.sub(lambda match: fields[match[1]], self.phrases[key])

    def lines(self, key: str, **fields: str) -> list[str]:
        """The lines of the phrase of `key`."""
        return self.say(key, **fields).split("\n")

    def sayer(self, key: str) -> Callable[..., str]:
        """`say` of one phrase, for those said very often."""
        parts = _FIELD.split(self.phrases[key])
        parts[::2] = [part.replace("{", "{{").replace("}", "}}") for part in parts[::2]]
        parts[1::2] = [f"{{{field}}}" for field in parts[1::2]]
        return "".join(parts).format

    def around(self, key: str, field: str, **fields: str) -> tuple[str, str]:
        """What stands before and after a field that a phrase has once."""
        said = (
            _FIELD.sub(lambda match: fields[match[1]], part)
            for part in self.phrases[key].split(f"{{{field}}}")
        )
        before, after = said
        return before, after

    @property
    def first_line(self) -> str:
        """The line that a text of rules begins with."""
        return FIRST_LINE + ("" if self.code == ENGLISH else f", language {self.code}")

    @cached_property
    def facts(self) -> dict[str, str]:
        """The keys of the header's lines, as wide as the widest and two columns."""
        keys = {key[5:]: text for key, text in self.phrases.items() if key.startswith("fact_")}
        widest = max(map(_columns, keys.values())) + 2
        return {key: text + " " * (widest - _columns(text)) for key, text in keys.items()}

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the phrases that stand beside names, as they are written."""
        said = [text for key, text in self.phrases.items() if key.startswith(GRAMMAR)]
        return frozenset(word for text in said for word in _WORD.findall(_FIELD.sub(" ", text)))

    @cached_property
    def reserved(self) -> frozenset[str]:
        """Casefolded texts that are quoted where they are names."""
        return _ALWAYS | {word.casefold() for word in self.words}


def fields_of(phrase: str) -> set[str]:
    """The fields of a phrase."""
    return set(_FIELD.findall(phrase))


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


@cache
def known_languages() -> tuple[str, ...]:
    """Codes of the languages that treekit brings."""
    folder = files("treekit.rules").joinpath("catalogue")
    return tuple(sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".toml")))


def language(code: str | Path | Language = ENGLISH) -> Language:
    """The catalogue of a language, or of a file whose name ends with ``.toml``.

    Raises
    ------
    SettingError
        If there is none, or if the file does not hold what texts of rules need.
    """
    if isinstance(code, Language):
        return code
    if code in known_languages():
        return _own(str(code))
    if not str(code).endswith(".toml"):
        raise SettingError(
            f"there is no catalogue of the language {str(code)!r}; known: "
            f"{', '.join(known_languages())}; or name a file that ends with .toml"
        )
    from treekit.rules.check_catalogue import checked

    return checked(_table(Path(code)), Path(code).name)


@cache
def _own(code: str) -> Language:
    place = files("treekit.rules").joinpath("catalogue", f"{code}.toml")
    table = tomllib.loads(place.read_text(encoding="utf-8"))
    said = {key: text if isinstance(text, str) else "\n".join(text) for key, text in table.items()}
    own = _own(ENGLISH).phrases if code != ENGLISH else {}
    return Language(code, own | said)


def _table(path: Path) -> dict[str, Any]:
    """What a file of a user's own says."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
        if any(line.count(b".") > _MOST_DOTS for line in content.split(b"\n")):
            raise ValueError(f"a line has more than {_MOST_DOTS} dots")
        return tomllib.loads(content.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(
            f"the catalogue {path.name!r} cannot be read ({error}); it is a TOML file of phrases "
            "as treekit/rules/catalogue/en.toml"
        ) from error
