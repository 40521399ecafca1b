"""The rules of models in service, page by page and searched."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.rules.extract import joinable_texts
from treekit.rules.language import language
from treekit.rules.merge import joined_rules
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import name_text, numerals
from treekit.rules.write_text import AnswerTexts
from treekit.serve.errors import InvalidRequestError, NotFoundError, TooLargeError

if TYPE_CHECKING:
    from treekit.serve.models.served import Served

__all__ = ["Asked", "Books"]

_BOOKS = 4
_MOST_CONDITIONS = 4 << 20
"""Of a model whose rules are listed: some 200 MB."""

_BLOCK = 2048
"""Rules that are put into words together for a search."""

_KEPT = 32 << 20
"""Characters that a book keeps for searches; what is beyond is said anew."""


class Asked(NamedTuple):
    """What part of a list is wanted: `tree` from 1, or 0 for all; `most` rules from `first` on."""

    lang: str = "en"
    search: str = ""
    first: int = 0
    most: int = 50
    tree: int = 0


class Books:
    """The rules of the models that were asked for last, each made once."""

    def __init__(self, most: int = _BOOKS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._books: OrderedDict[str, _Book] = OrderedDict()

    def page(self, served: Served, asked: Asked) -> dict[str, Any]:
        """Some rules of a model; to be called in a thread.

        Raises
        ------
        NotFoundError
            For a tree that the model does not have.
        InvalidRequestError
            For models that are not treekit's.
        TooLargeError
            If the model has too many rules.
        """
        model = served.model
        if model is None:
            raise InvalidRequestError(
                f"model {served.name!r} is an ONNX file, whose rules this server does not know"
            )
        if asked.tree > model.n_trees:
            raise NotFoundError(
                f"model {served.name!r} has no tree {asked.tree}; they are 1 to {model.n_trees}"
            )
        if model.n_leaves * max(model.depth, 1) > _MOST_CONDITIONS:
            raise TooLargeError(
                f"model {served.name!r} has {model.n_leaves:,} leaves, too many for this server "
                "to list; write its rules with `treekit rules`"
            )
        found = self._book(served).page(asked)
        return {"model": served.name, "version": served.version, **found}

    def _book(self, served: Served) -> _Book:
        with self._lock:  # by content: a model that was replaced is not held
            book = self._books.setdefault(served.digest, _Book(served))
            self._books.move_to_end(served.digest)
            while len(self._books) > self._most:
                self._books.popitem(last=False)
        return book


class _Book:
    """The rules of one model."""

    def __init__(self, served: Served) -> None:
        self._lock = threading.Lock()
        self._model = served.model
        self._rules: RuleList | None = None
        self._edition: dict[str, _Edition] = {}

    def page(self, asked: Asked) -> dict[str, Any]:
        with self._lock:
            if self._rules is None:
                assert self._model is not None  # noqa: S101 - for the type checker
                self._rules, self._model = joined_rules(self._model), None
            if asked.lang not in self._edition:
                self._edition[asked.lang] = _Edition(self._rules, asked.lang)
            return self._edition[asked.lang].page(asked)


class _Edition:
    """The rules of one model in one language."""

    def __init__(self, rules: RuleList, lang: str) -> None:
        self._rules, self._words = rules, language(lang)
        self._answers = AnswerTexts(rules, self._words)
        self._kept: dict[int, list[str]] = {}
        self._size = 0

    def page(self, asked: Asked) -> dict[str, Any]:
        rules = self._rules
        start, stop = 0, len(rules)
        if asked.tree:
            start, stop = np.searchsorted(rules.tree, [asked.tree - 1, asked.tree]).tolist()
        needle = asked.search.casefold()
        places = np.arange(start, stop)
        if needle:
            places = np.fromiter(self._found(needle, start, stop), np.int64)
        shown = places[asked.first : asked.first + asked.most]
        return {"total": len(rules), "found": len(places), "rules": self._said(shown)}

    def _found(self, needle: str, start: int, stop: int) -> Iterator[int]:
        """The rules from `start` to `stop` whose conditions or answers hold a text."""
        for block in range(start // _BLOCK, -(-stop // _BLOCK)):
            for rule, text in enumerate(self._searched(block), block * _BLOCK):
                if needle in text and start <= rule < stop:
                    yield rule

    def _searched(self, block: int) -> list[str]:
        if block in self._kept:
            return self._kept[block]
        first = block * _BLOCK
        last = min(first + _BLOCK, len(self._rules))
        which = np.arange(first, last)
        conditions = joinable_texts(self._rules, which, self._words)
        answers = self._says(first, last)
        # A line break between: no search goes from a condition into the answer.
        texts = [
            f"{''.join(own)}\n{said}".casefold()
            for own, (said, _) in zip(conditions, answers, strict=True)
        ]
        size = sum(map(len, texts))
        if self._size + size <= _KEPT:
            self._kept[block] = texts
            self._size += size
        return texts

    def _says(self, first: int, last: int) -> list[tuple[str, str]]:
        """For each rule the answer, and shares, of all targets."""
        rules = self._rules
        blocks = rules.schema.blocks
        columns = [self._answers.said(a, b, first, last) for a, b in itertools.pairwise(blocks)]
        if not rules.schema.more:
            return columns[0]
        names = [name_text(output.name, self._words) for output in rules.schema.outputs]
        return [
            (
                "; ".join(f"{n}: {said}" for n, (said, _) in zip(names, own, strict=True)),
                "; ".join(
                    f"{n}: {share}" for n, (_, share) in zip(names, own, strict=True) if share
                ),
            )
            for own in zip(*columns, strict=True)
        ]

    def _said(self, which: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        rules = self._rules
        weights = numerals(rules.support[which])
        conditions = joinable_texts(rules, which, self._words)
        said = []
        for place, (rule, own) in enumerate(zip(which.tolist(), conditions, strict=True)):
            ((answer, shares),) = self._says(rule, rule + 1)
            said.append(
                {
                    "number": rule + 1,
                    "tree": int(rules.tree[rule]) + 1,
                    "conditions": own[::2],
                    "text": "".join(own),
                    "says": answer,
                    "shares": shares,
                    "weight": float(weights[place]),
                }
            )
        return said
