"""CHAID in plain Python with sets, scipy's tests and exact multipliers: the oracle."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
from scipy.stats import chi2_contingency, f_oneway

MISSING = -1


def p_of_classes(groups):
    """Compute Pearson's test for lists of classes."""
    values = sorted({y for group in groups for y in group})
    table = np.array([[list(group).count(v) for v in values] for group in groups])
    if len(values) < 2:
        return 1.0
    return chi2_contingency(table, correction=False).pvalue


def p_of_numbers(groups):
    """Compute the F test for lists of numbers."""
    if sum(map(len, groups)) <= len(groups) or np.ptp(np.concatenate(groups)) == 0:
        return 1.0
    if all(np.ptp(group) == 0 for group in groups):
        return 0.0
    return f_oneway(*groups).pvalue


def multiplier(c, r, monotonic, floating):
    """Compute the multiplier of Kass 1980, p. 122-123, in exact integers."""
    if not monotonic:
        terms = (
            Fraction((-1) ** i * (r - i) ** c, math.factorial(i) * math.factorial(r - i))
            for i in range(r)
        )
        return int(sum(terms))
    if floating:
        return (math.comb(c - 2, r - 2) if r > 1 else 0) + r * math.comb(c - 2, r - 1)
    return math.comb(c - 1, r - 1)


class Predictor:
    """A column at a node: categories in order, with the targets of their rows."""

    def __init__(self, cells, targets, monotonic, test):
        self.monotonic, self.test = monotonic, test
        self.targets = {}
        for cell, y in zip(cells, targets, strict=True):
            self.targets.setdefault(cell, []).append(y)
        self.categories = sorted(c for c in self.targets if c != MISSING)
        self.floating = MISSING in self.targets
        if self.floating:
            self.categories.append(MISSING)

    def rows(self, group):
        return [y for c in self.categories if c in group for y in self.targets[c]]

    def p(self, groups):
        return self.test([self.rows(group) for group in groups])

    def place(self, group):
        return min(self.categories.index(c) for c in group)

    def allowed(self, a, b, groups):
        if not self.monotonic or {MISSING} in (a, b):
            return True
        ordered = sorted((g for g in groups if g != {MISSING}), key=self.place)
        return abs(ordered.index(a) - ordered.index(b)) == 1

    def most_alike(self, groups, only=None):
        best = None
        for a, b in combinations(sorted(groups, key=self.place), 2):
            if (only is None or only in (a, b)) and self.allowed(a, b, groups):
                p = self.p([a, b])
                if best is None or p > best[0] * (1 + 1e-9):
                    best = (p, a, b)
        return best

    def division(self, group):
        """Return the most significant allowed division of a group in two, and its p-value."""
        best = None
        members = sorted(group, key=self.categories.index)
        for size in range(1, len(members)):
            for half in map(set, combinations(members, size)):
                rest = group - half
                known = [c in half for c in members if c != MISSING]
                changes = sum(x != y for x, y in pairwise(known))
                if self.monotonic and changes > 1:
                    continue
                p = self.p([half, rest])
                if best is None or p < best[0]:
                    best = (p, half, rest)
        return best

    def merged(self, alpha_merge, alpha_part, least):
        groups = [{c} for c in self.categories]
        while len(groups) > 1:
            p, a, b = self.most_alike(groups)
            if p <= alpha_merge:
                light = min(groups, key=lambda g: (len(self.rows(g)), self.place(g)))
                if len(self.rows(light)) >= least:
                    break
                _, a, b = self.most_alike(groups, light)
                alpha_part = 0
            groups = [g for g in groups if g not in (a, b)] + [a | b]
            if alpha_part > 0 and len(a | b) > 2:
                q, half, rest = self.division(a | b)
                if q <= alpha_part:
                    groups = [g for g in groups if g != a | b] + [half, rest]
        return sorted(groups, key=self.place)

    def adjusted(self, groups, bonferroni=True):
        p = self.p(groups)
        if bonferroni:
            p *= multiplier(len(self.categories), len(groups), self.monotonic, self.floating)
        return p
