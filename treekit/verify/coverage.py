"""What the rows of a verification reach of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Number of parts of one kind that were reached, and that inputs can reach."""

    name: str
    reached: int
    reachable: int

    @property
    def share(self) -> float:
        """Share reached, from 0 to 1; 1 if nothing is reachable."""
        return self.reached / self.reachable if self.reachable else 1.0


@dataclass(frozen=True)
class Coverage:
    """What the rows reach of a model.

    Attributes
    ----------
    parts : tuple of Part
        Of splits on sums and with surrogates, and of rule lists, some parts count as
        reachable that no input can reach.
    unreachable : tuple of (int, int)
        Tree and node of every node that no input can reach: on its path the set of values left
        for some column is empty.  For a child of a split this is the branch to it.
    cut : str
        Why some splits got no rows; empty if all did.
    """

    parts: tuple[Part, ...]
    unreachable: tuple[tuple[int, int], ...]
    cut: str = ""

    @property
    def complete(self) -> bool:
        """Whether no rows were left out, and they reached every leaf and branch.

        Of the values at a split, some may be out of reach of any input.
        """
        return not self.cut and all(part.share == 1.0 for part in self.parts[:2])

    def part(self, name: str) -> Part:
        """Return a part by name."""
        return next(part for part in self.parts if part.name == name)
