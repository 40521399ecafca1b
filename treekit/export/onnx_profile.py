"""Which operators an ONNX file may use: a runtime profile decides, in one place.

onnxruntime's own table (docs/reference/compatibility.md) says which version
knows which operators.  What it does not say was found by running every kind of
graph in 1.15, 1.16, 1.18, 1.20 to 1.24, 1.27, 1.29 and 1.31:

float64 inputs
    exact since 1.15, the oldest tried, also in the tree operators of ai.onnx.ml 3:
    thresholds one ulp apart, in every size of batch.
``TreeEnsemble`` of ai.onnx.ml 5
    unknown to 1.20, though it reads files of that version.  1.21 and 1.22 misread
    tests of membership (58 of 60 random trees of such tests), and 1.23 trees that
    mix tests (56 of 400 random models); from 1.24 on all 400 are right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from treekit.errors import ExportError

__all__ = [
    "DOUBLES",
    "MARKS",
    "MEMBERS",
    "NEWEST_OPSET",
    "OLDEST_OPSET",
    "Ability",
    "Profile",
    "choose_profile",
]

Version = tuple[int, int]

OLDEST_OPSET, NEWEST_OPSET = 13, 21
_USUAL_OPSET = 17
_RELEASES: tuple[tuple[Version, int], ...] = (
    ((1, 12), 17),
    ((1, 14), 18),
    ((1, 16), 19),
    ((1, 17), 20),
    ((1, 18), 21),
)
"""Standard operators that an onnxruntime knows, up to the newest that treekit writes."""


@dataclass(frozen=True, slots=True)
class Ability:
    """What a graph may need that not every runtime has."""

    what: str
    since: Version = (1, 12)
    opset: int = OLDEST_OPSET
    ml_opset: int = 3


DOUBLES = Ability("inputs and thresholds in float64", since=(1, 15))
MARKS = Ability(
    "telling texts that mean missing from unseen categories (inputs='columns' with "
    "unknown='error')",
    since=(1, 17),
    opset=20,
)
MEMBERS = Ability(
    "category sets so large that each must be a single test", since=(1, 24), ml_opset=5
)


@dataclass(frozen=True, slots=True)
class Profile:
    """The operators of one file.

    Attributes
    ----------
    runtime : (int, int)
        The oldest onnxruntime that the file is for.
    opset : int
        Version of the standard operators.
    ml_opset : int
        Version of ai.onnx.ml: 3, or 5 with `TreeEnsemble`.
    """

    runtime: Version = (1, 12)
    opset: int = _USUAL_OPSET
    ml_opset: int = 3

    @property
    def runtime_text(self) -> str:
        """The oldest onnxruntime, as people write it."""
        return _text(self.runtime)


def choose_profile(
    needs: Sequence[Ability], target_runtime: str = "", opset: int | None = None
) -> Profile:
    """The operators for a model that needs `needs`.

    Parameters
    ----------
    needs : sequence of Ability
    target_runtime : str
        An onnxruntime version, of which the file may use all that is proved;
        empty: whatever reaches most runtimes.
    opset : int, optional
        Version of the standard operators, in place of the profile's.

    Raises
    ------
    ExportError
        If the runtime, or the operators, cannot do what the model needs.
    """
    named = bool(target_runtime)
    runtime = _parsed(target_runtime) if named else _oldest(needs, opset)
    for need in needs:
        if runtime < need.since:
            raise ExportError(
                f"onnx: this model needs {need.what}, which onnxruntime {_text(runtime)} cannot "
                f"run: the oldest that can is {_text(need.since)}"
            )
        if opset is not None and opset < need.opset:
            raise ExportError(
                f"onnx: this model needs {need.what}, which the operators of opset={opset} do "
                f"not have: give opset={need.opset} or more"
            )
    newest = max(known for since, known in _RELEASES if since <= runtime)
    if opset is not None and opset > newest:
        raise ExportError(
            f"onnx: onnxruntime {_text(runtime)} knows the standard operators up to version "
            f"{newest}, and opset is {opset}: lower it, or name a newer target_runtime"
        )
    usual = newest if named else max([_USUAL_OPSET, *(need.opset for need in needs)])
    ml_opset = max([3, *(need.ml_opset for need in needs)])
    if named and runtime >= MEMBERS.since:
        ml_opset = MEMBERS.ml_opset
    return Profile(runtime, usual if opset is None else opset, ml_opset)


def _oldest(needs: Sequence[Ability], opset: int | None) -> Version:
    """The oldest runtime that has all of it."""
    knows = [since for since, known in _RELEASES if opset is None or known >= opset]
    if not knows:
        raise ExportError(
            f"onnx: opset {opset} is newer than what treekit writes, {_RELEASES[-1][1]}"
        )
    return max([knows[0], *(need.since for need in needs)])


def _parsed(text: str) -> Version:
    numbers = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?", text.strip(), re.ASCII)
    if numbers is None:
        raise ExportError(
            f"onnx: target_runtime is {text!r}, which is no version of onnxruntime: write it "
            "like '1.20'"
        )
    version = int(numbers[1]), int(numbers[2])
    oldest = _RELEASES[0][0]
    if version < oldest:
        raise ExportError(
            f"onnx: onnxruntime {_text(version)} lacks operators of these graphs; the oldest "
            f"target_runtime is {_text(oldest)}"
        )
    return version


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
