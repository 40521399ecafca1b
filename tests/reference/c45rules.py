"""Slow C4.5rules: rules are lists of conditions, each evaluated on each row.

Rows are lists of codes and numbers (NaN = missing) of weight 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.reference.error_based import added_errors
from treekit.model.model import Model
from treekit.model.tree import Split, Tree

__all__ = [
    "Rule",
    "Table",
    "best_subset",
    "dropped",
    "in_order",
    "length",
    "paths",
    "rate",
    "shortened",
]

Question = Callable[[Sequence[float]], bool]


@dataclass(frozen=True)
class Table:
    """Rows, the class of each, and the number of classes."""

    rows: list[list[float]]
    y: list[int]
    k: int

    def count(self, label: int) -> int:
        return self.y.count(label)


@dataclass
class Rule:
    """Rule, met by a row if all its conditions hold."""

    questions: list[Question]
    label: int
    bits: float = 0.0

    def meets(self, row: Sequence[float]) -> bool:
        return all(question(row) for question in self.questions)

    def covers(self, table: Table) -> frozenset[int]:
        return frozenset(i for i, row in enumerate(table.rows) if self.meets(row))


def paths(model: Model, tree: Tree, node: int = 0) -> list[Rule]:
    """List the rules of the leaves below a node, with a condition for each split."""
    first, count = int(tree.first_child[node]), int(tree.n_children[node])
    if count == 0:
        weights = tree.value[node].tolist()
        return [Rule([], weights.index(max(weights)))]
    found = []
    for branch in range(count):
        for rule in paths(model, tree, first + branch):
            rule.questions.insert(0, question(model, tree, node, branch))
            found.append(rule)
    return found


def question(model: Model, tree: Tree, node: int, branch: int) -> Question:
    feature, kind = int(tree.feature[node]), int(tree.kind[node])
    carries = model.missing == "direction" and int(tree.missing[node]) == branch

    def asks(row: Sequence[float]) -> bool:
        value = row[feature]
        if kind == Split.MISSING:
            return (value != value) == (branch == 0)
        if value != value:
            return carries
        if kind == Split.THRESHOLD:
            return (value <= float(tree.threshold[node])) == (branch == 0)
        goes = int(tree.branches(node)[int(value)])
        return carries if goes < 0 else goes == branch

    return asks


def rate(table: Table, covered: frozenset[int], label: int, cf: float) -> float:
    """Compute the pessimistic error rate of predicting `label` for some rows."""
    if not covered:
        return 1.0
    wrong = sum(table.y[i] != label for i in covered)
    return (wrong + added_errors(len(covered), wrong, cf)) / len(covered)


def dropped(table: Table, rule: Rule, cf: float) -> Rule:
    """Drop the conditions of a rule that do not lower its error rate."""
    rule = Rule(list(rule.questions), rule.label)
    while rule.questions:
        shorter = [
            Rule(rule.questions[:i] + rule.questions[i + 1 :], rule.label)
            for i in range(len(rule.questions))
        ]
        rates = [rate(table, each.covers(table), rule.label, cf) for each in shorter]
        if min(rates) > rate(table, rule.covers(table), rule.label, cf):
            break
        rule = shorter[rates.index(min(rates))]
    return rule


def length(table: Table, rules: Sequence[Rule], label: int) -> float:
    """Compute the description length of a class's rules: half their bits plus the exceptions."""
    covered = frozenset().union(*(rule.covers(table) for rule in rules))
    wrong = sum(table.y[i] != label for i in covered)
    lost = table.count(label) - (len(covered) - wrong)
    others = len(table.rows) - len(covered)
    theory = sum(rule.bits for rule in rules) - math.log2(math.factorial(len(rules)))
    exceptions = math.log2(math.comb(len(covered), wrong)) + math.log2(math.comb(others, lost))
    return exceptions + 0.5 * max(theory, 0.0)


def best_subset(table: Table, rules: Sequence[Rule], label: int) -> float:
    """Compute the minimum description length of any subset of the rules."""
    some = itertools.chain.from_iterable(
        itertools.combinations(rules, n) for n in range(len(rules) + 1)
    )
    return min(length(table, subset, label) for subset in some)


def in_order(table: Table, rules: Sequence[Rule]) -> list[Rule]:
    """Order rules by class, fewest false positives among the uncovered rows first."""
    left, order = set(range(len(table.rows))), []
    waiting = sorted({rule.label for rule in rules})
    while waiting:
        keys = []
        for label in waiting:
            own = [rule for rule in rules if rule.label == label]
            covered = left & frozenset().union(*(rule.covers(table) for rule in own))
            keys.append((sum(table.y[i] != label for i in covered), len(own), label))
        label = min(keys)[2]
        waiting.remove(label)
        mine = [rule for rule in rules if rule.label == label]
        order += mine
        left -= frozenset().union(*(rule.covers(table) for rule in mine))
    return order


def shares(table: Table, rules: Sequence[Rule]) -> list[list[int]]:
    """Count the rows of each class by their first matching rule; the last entry is no rule."""
    counts = [[0] * table.k for _ in range(len(rules) + 1)]
    for row, label in zip(table.rows, table.y, strict=True):
        first = next((i for i, rule in enumerate(rules) if rule.meets(row)), len(rules))
        counts[first][label] += 1
    return counts


def errors(table: Table, rules: Sequence[Rule]) -> int:
    """Count the errors of the list, with the most frequent uncovered class as default."""
    counts = shares(table, rules)
    said = [sum(n) - n[rule.label] for n, rule in zip(counts, rules, strict=False)]
    return sum(said) + sum(counts[-1]) - max(counts[-1])


def shortened(table: Table, rules: Sequence[Rule], most: int | None = None) -> list[Rule]:
    """Drop rules that do not reduce errors, or whose class is not the majority of their rows."""
    rules = list(rules)
    while rules:
        without = [errors(table, rules[:i] + rules[i + 1 :]) for i in range(len(rules))]
        counts = shares(table, rules)
        odd = [
            i
            for i, rule in enumerate(rules)
            if not any(counts[i]) or counts[i].index(max(counts[i])) != rule.label
        ]
        last = max(i for i, wrong in enumerate(without) if wrong == min(without))
        if min(without) <= errors(table, rules):
            del rules[last]
        elif odd:
            del rules[odd[-1]]
        elif most is not None and len(rules) > most:
            del rules[last]
        else:
            break
    return rules
