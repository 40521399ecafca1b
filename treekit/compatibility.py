"""Plugins of older contracts: the one module that knows what they may look like.

What a version promises, and for how long, is written in `treekit.contracts`.  Here a
plugin's version is read, and what it makes is brought to the present one.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from treekit.contracts import CONTRACT_VERSION, CriterionFunctions
from treekit.errors import PluginError

__all__ = ["ATTRIBUTE", "OLDEST_CONTRACT", "adapted", "contract_of", "contract_of_maker"]

ATTRIBUTE = "treekit_contract"
"""Of a plugin's module: the version of the contract that it was written for."""

OLDEST_CONTRACT = 1
"""The oldest version that is still adapted, and that of a module that does not say."""


def contract_of(plugin: object) -> int:
    """The version of the contract that a plugin was written for.

    Parameters
    ----------
    plugin : module, or whatever else an entry point names

    Raises
    ------
    PluginError
        If it is no whole number, or one that this treekit does not support; the
        message is the end of a sentence that begins with the plugin.
    """
    said: Any = getattr(plugin, ATTRIBUTE, OLDEST_CONTRACT)
    if type(said) is not int:
        raise PluginError(
            f"has {ATTRIBUTE} = {said!r}, which is no whole number; this treekit's contract "
            f"is {CONTRACT_VERSION}"
        )
    if said > CONTRACT_VERSION:
        raise PluginError(
            f"was written for version {said} of the contract, and this treekit knows versions "
            f"up to {CONTRACT_VERSION}; upgrade treekit"
        )
    if said < OLDEST_CONTRACT:
        raise PluginError(
            f"was written for version {said} of the contract, and this treekit supports "
            f"versions {OLDEST_CONTRACT} to {CONTRACT_VERSION}; update the plugin"
        )
    return said


def contract_of_maker(make: Callable[..., Any]) -> int:
    """The version that the module of a record's `make` says, for records no plugin lists."""
    return contract_of(sys.modules.get(getattr(make, "__module__", None) or ""))


def adapted(functions: Any, contract: int) -> tuple[Any, str]:
    """What ``make`` returned, as the present contract has it.

    Parameters
    ----------
    functions : object
        Not checked yet: anything that needs no adapting is passed through.
    contract : int
        The version that its plugin was written for.

    Returns
    -------
    functions : object
    note : str
        What of an older contract was used, and what to write instead, as the end of a
        sentence; empty if nothing was.
    """
    if contract < 2 and isinstance(functions, CriterionFunctions):
        return _with_levels(functions)
    return functions, ""


def _with_levels(functions: CriterionFunctions) -> tuple[CriterionFunctions, str]:
    """Contract 1: `choose` might take two arguments."""
    if not _takes_two(functions.choose):
        return functions, ""
    note = (
        "gives a choose of two arguments, which is of version 1 of the contract; write "
        "choose(gains, scores, levels), and treekit_contract = 2 in the plugin's module"
    )
    return replace(functions, choose=_ignoring_levels(functions.choose)), note


def _takes_two(function: Any) -> bool:
    """Whether a function can be called with two positional arguments, and not with three."""
    if not callable(function):
        return False
    try:
        signature = inspect.signature(getattr(function, "py_func", function))
    except (TypeError, ValueError):  # some functions written in C do not say
        return False
    return _binds(signature, 2) and not _binds(signature, 3)


def _binds(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def _ignoring_levels(choose: Any) -> Callable[..., int]:
    def of_three(gains: Any, scores: Any, levels: Any) -> int:  # noqa: ARG001 - what is new in 2
        result: int = choose(gains, scores)
        return result

    # Of the plugin's own package, so that numba compiles what it calls along with it.
    of_three.__module__ = getattr(choose, "__module__", None) or __name__
    return of_three
