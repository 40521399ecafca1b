"""Execute the text of exported rules, as its last lines specify, with the standard library.

    python read_rules.py MODEL.rules.txt TABLE.csv

Prints for every row the label and the class probabilities, or the number.
"""

import csv
import math
import re
import struct
import sys
from fractions import Fraction
from pathlib import Path

NAME = r'(?:"(?:[^"\\]|\\.)*"|[^\W\d]\w*)'
TOKEN = rf"(?:{NAME}|-?[0-9][^\s,:]*)"
LEVEL = re.compile(rf"({NAME})(?:, | or |$)")
ESCAPE = re.compile(r'\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|(["\\nrt]))')
HEAD = re.compile(r"Predicts (.+)\. Rules: \d+(?:, of (\d+) trees)?\.")
COLUMN = re.compile(
    rf"^  ({NAME}): (numeric|without values|one of ({TOKEN}(?:, {TOKEN})*))$", re.MULTILINE
)
CONDITION = re.compile(
    rf"({NAME}) (?:(is missing)|cannot fit|(is known)"
    rf"|is ({NAME}(?:(?:, {NAME})* or {NAME})?)"
    rf"|> (\S+)(?: and {NAME} <= (\S+?))?|<= (\S+?))(, or is missing)?"
)
THEN = re.compile(rf"  then ({TOKEN})   support \S+(?:   (.+))?")


def plain(token):
    """Return a name or label without its quotes."""
    if not token.startswith('"'):
        return token
    short = {"n": "\n", "r": "\r", "t": "\t"}
    return ESCAPE.sub(
        lambda m: short.get(m[3], m[3]) if m[3] else chr(int(m[1] or m[2], 16)), token[1:-1]
    )


def texts(levels):
    """Return the items of a list without their quotes."""
    return [plain(token) for token in LEVEL.findall(levels)]


def single(x):
    """Return the float32 nearest to x, ties to even."""
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


class Rules:
    """The rules of each tree, and the facts that the text states above and below them."""

    def __init__(self, text):
        text, notes = text.split("\n\nHow to read this\n")
        head, *blocks = text.split("\n\nrule ")
        self.facts = dict(re.findall(r"^(\w+) +(.+)$", notes, re.MULTILINE))
        self.round = single if self.facts["type"] == "float32" else float
        self.columns = {
            plain(name): None if kind == "numeric" else set(texts(levels))
            for name, kind, levels in COLUMN.findall(notes)
        }
        target, trees = HEAD.fullmatch(head.split("\n")[1]).groups()
        classes = COLUMN.fullmatch(f"  {target}")[3]
        self.classes = re.findall(TOKEN, classes or "")
        self.trees = [[] for _ in range(int(trees or 1))]
        for block in blocks:
            place, *lines, then = block.split("\n")
            tree = re.search(r", tree (\d+) of", place)
            conditions = (
                []
                if lines in (["  always"], ["  otherwise"])
                else [self.condition(x[6:]) for x in lines]
            )
            self.trees[int(tree[1]) - 1 if tree else 0].append((conditions, self.then(then)))

    def condition(self, line):
        """Parse a condition: the column, whether missing values meet it, and the test of others."""
        found = CONDITION.fullmatch(line)
        name, gone, known, levels, low, between, high, or_gone = found.groups()
        above = self.round(float(low)) if low else None
        upto = self.round(float(between or high or "inf"))
        if levels:
            listed = set(texts(levels))
            fits = listed.__contains__
        elif low or high:
            fits = lambda x: (above is None or x > above) and x <= upto  # noqa: E731
        else:
            fits = lambda _: bool(known)  # noqa: E731
        return plain(name), bool(gone or or_gone), fits

    def then(self, line):
        """Parse a conclusion: the votes of the classes in order, or the number."""
        number, shares = THEN.fullmatch(line).groups()
        if not self.classes:
            return [Fraction(float(number))]
        share, votes = dict(re.findall(rf"({TOKEN}): ([0-9.]+)", shares)), int(self.facts["votes"])
        half = Fraction(1, 2)
        return [math.floor(Fraction(share.get(name, 0)) * votes + half) for name in self.classes]

    def cell(self, name, text):
        """Return a cell as a value for the rules, None if it is missing."""
        levels = self.columns[name]
        if text and levels is not None and text not in levels:
            if self.facts["unknown"] == "error":
                raise SystemExit(f"the rules refuse the category {text!r} of {name!r}")
            text = ""
        if not text and self.facts["missing"] == "error":
            raise SystemExit(f"the rules refuse a missing {name!r}")
        if not text:
            return None
        return text if levels is not None else self.round(float(text))

    def answer(self, row):
        """Return the label and the probabilities, or the number twice."""
        cells = {name: self.cell(name, row[name]) for name in self.columns}
        total = [0] * max(len(self.classes), 1)
        for tree in self.trees:
            # A tree has exactly one matching rule; in an ordered list the first match counts.
            units = next(units for rule, units in tree if all(met(cells, part) for part in rule))
            total = [a + b for a, b in zip(total, units, strict=True)]
        if not self.classes:
            number = float(total[0]) / len(self.trees)
            return [repr(number), number.hex()]
        whole = int(self.facts["votes"]) * len(self.trees)
        label = plain(self.classes[total.index(max(total))])
        return [label, *((votes / whole).hex() for votes in total)]


def met(cells, condition):
    """Return whether the cells of a row meet a condition."""
    name, missing, fits = condition
    return missing if cells[name] is None else fits(cells[name])


def main(rules, table):
    model = Rules(Path(rules).read_bytes().decode())
    with Path(table).open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            print(*model.answer(row), sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
