"""The phrases of a language as patterns: what one of them was filled with.

A word of the language is never a plain name (`treekit.rules.words.name_text` quotes
it), so that no name can pass for a part of a phrase, nor a phrase for a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from treekit.rules.language import Language
from treekit.rules.words import read_name

__all__ = ["NUMBER", "OPENED", "QUOTED", "SHARE", "WHOLE", "Atoms", "Patterns", "cut", "shape"]

NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
SHARE = r"[0-9]+(?:\.[0-9]+)?"
WHOLE = r"[0-9]+"
QUOTED = r'"(?:[^"\\]|\\.)*+"'
OPENED = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
"""A quoted text, or all that follows a quote that nothing closes: no search starts in it anew."""
_FREE = rf'[^"]*(?:{QUOTED}[^"]*)*'
_FIELD = re.compile(r"\{([a-z_][a-z_0-9]*)\}")


class Atoms:
    """Patterns of what the fields of phrases hold, in one language."""

    def __init__(self, words: Language) -> None:
        self.words = words
        own = "|".join(sorted(map(re.escape, words.words)))
        say = words.phrases
        self.name = rf"(?:{QUOTED}|(?!(?:{own})(?!\w))[^\W\d]\w*)"
        self.label = rf"(?:{self.name}|{NUMBER})"
        comma, last = re.escape(say["if_comma"]), re.escape(say["if_or"])
        nothing = re.escape(say["if_nothing"])
        self.levels = rf"(?:{self.name}(?:(?:{comma}{self.name})*{last}{self.name})?|{nothing})"
        self.listed = rf"{self.label}(?:{comma}{self.label})*+"
        self.test = re.escape(say["test_name"]).replace(r"\{number\}", WHOLE)
        self._level = re.compile(rf"({self.name})(?:{comma}|{last}|\Z)")

    @cached_property
    def known(self) -> dict[str, str]:
        """Patterns of the fields of conditions."""
        return {
            "name": self.name,
            "levels": self.levels,
            "others": self.levels,
            "test": self.test,
            "low": NUMBER,
            "high": NUMBER,
            "gist": _FREE,
            "condition": _FREE,
            "percent": r"[0-9.e+-]+",
        }

    def levels_of(self, text: str) -> list[str]:
        """The levels that a list of them names."""
        if text == self.words.phrases["if_nothing"]:
            return []
        return [read_name(match[1]) for match in self._level.finditer(text)]


class Patterns:
    """Phrases, tried in order.

    Parameters
    ----------
    words : Language
    keys : sequence of str
        The phrases.
    atoms : mapping of str to str
        For each field a pattern without groups.
    """

    def __init__(self, words: Language, keys: Sequence[str], atoms: Mapping[str, str]) -> None:
        self.fields: dict[str, list[tuple[str, int]]] = {}
        parts, count = [], 0
        for key in keys:
            count += 1  # the phrase's own group is closed last: `lastgroup` names it
            pattern, self.fields[key] = _pattern(words.phrases[key], atoms, count)
            parts.append(rf"(?P<{key}>{pattern})")
            count += len(self.fields[key])
        self._match = re.compile("|".join(parts), re.DOTALL).fullmatch

    def read(self, text: str) -> tuple[str, dict[str, str]] | None:
        """Which phrase a text is, and its fields; None if it is none of them."""
        match = self._match(text)
        if match is None or match.lastgroup is None:
            return None
        key = match.lastgroup
        return key, {field: match[group] for field, group in self.fields[key]}


def _pattern(
    phrase: str, atoms: Mapping[str, str], groups: int
) -> tuple[str, list[tuple[str, int]]]:
    """A phrase as a pattern behind so many groups, and which group is which field."""
    found: dict[str, int] = {}
    pattern = ""
    for at, part in enumerate(_FIELD.split(phrase)):
        if at % 2 == 0:
            pattern += re.escape(part)
        elif part in found:  # said again: the same text
            pattern += rf"(?:\{found[part]})"
        else:
            found[part] = groups + len(found) + 1
            pattern += f"({atoms[part]})"
    return pattern, list(found.items())


def shape(phrase: str, atoms: Mapping[str, str]) -> str:
    """A phrase as a pattern without groups, to be a field of another one."""
    parts = _FIELD.split(phrase)
    return "".join(atoms[p] if at % 2 else re.escape(p) for at, p in enumerate(parts))


def cut(text: str, separator: str) -> Iterator[str]:
    """The parts of a text between separators that stand outside of quotes."""
    at = 0
    for match in re.finditer(rf"{OPENED}|({re.escape(separator)})", text):
        if match[1]:
            yield text[at : match.start()]
            at = match.end()
    yield text[at:]
