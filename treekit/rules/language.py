"""The words of rules in the reader's language: one small catalogue file for each.

A catalogue is a TOML file of phrases with fields in braces.  A phrase is filled in once,
field by field: what a field holds is never read as a phrase, and no field can reach
beyond its own text.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from treekit.errors import SettingError

__all__ = ["ENGLISH", "Language", "language"]

ENGLISH = "en"
_FIELD = re.compile(r"\{([a-z_]+)\}")


class Language(NamedTuple):
    """The phrases of one language.

    Attributes
    ----------
    code : str
        As of BCP 47: ``en``, ``zh``.
    phrases : dict of str to str
    """

    code: str
    phrases: dict[str, str]

    def say(self, key: str, **fields: str) -> str:
        """The phrase of `key` with each ``{field}`` replaced."""
        return _FIELD.sub(lambda match: fields[match[1]], self.phrases[key])


@cache
def language(code: str = ENGLISH) -> Language:
    """The catalogue of a language, or of a file whose name ends with ``.toml``.

    Raises
    ------
    SettingError
        If there is none.
    """
    folder = files("treekit.rules").joinpath("catalogue")
    known = sorted(place.name[:-5] for place in folder.iterdir() if place.name.endswith(".toml"))
    if code.endswith(".toml"):
        text = Path(code).read_text(encoding="utf-8")
    elif code in known:
        text = folder.joinpath(f"{code}.toml").read_text(encoding="utf-8")
    else:
        raise SettingError(
            f"there is no catalogue of the language {code!r}; known: {', '.join(known)}; "
            "or name a file that ends with .toml"
        )
    return Language(code, tomllib.loads(text))
