"""The time that a verification may take, and what it left out to keep within it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from treekit.errors import VerificationError

__all__ = ["Budget"]


@dataclass
class Budget:
    """Seconds from now on.

    Attributes
    ----------
    seconds : float
        Positive; infinite = no bound.
    cuts : list of str
        What was left out for lack of time, in words.
    """

    seconds: float
    cuts: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise VerificationError(f"a budget is a positive number of seconds, not {self.seconds}")

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(self.started + self.seconds - time.monotonic(), 0.0)

    def until(self, share: float) -> float:
        """When a share of what is left is over, as `time.monotonic` counts; may be infinite."""
        return math.inf if math.isinf(self.seconds) else time.monotonic() + share * self.left
