"""``KEY=VALUE`` texts to typed settings, of training and of the chosen components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treekit.contracts import Setting
from treekit.errors import SettingError
from treekit.settings import help_rows, parse_assignments

__all__ = ["PARTS", "settings_help", "training_settings"]

PARTS = ("criterion", "splitter", "pruner")


def training_settings(
    options: Mapping[str, str | None], assignments: Sequence[str]
) -> dict[str, Any]:
    """Typed settings, as `treekit.train` takes them.

    Parameters
    ----------
    options : mapping
        Settings that have an option of their own; None = not given.
    assignments : sequence of str
        ``KEY=VALUE``; a component's own settings as ``criterion.KEY=VALUE``.

    Raises
    ------
    SettingError
        For unknown names, components and settings, for values out of range,
        and for settings of a component that is not chosen by name.
    """
    from treekit.training.settings import SETTINGS

    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    own: dict[str | None, list[str]] = {kind: [] for kind in (None, *PARTS)}
    own[None] = given
    for text in assignments:
        key = text.partition("=")[0].strip()
        kind, dot, _ = key.partition(".")
        if dot and kind not in PARTS:
            raise SettingError(
                f"unknown setting {key!r}; a component's own settings begin with "
                + ", ".join(f"'{part}.'" for part in PARTS)
            )
        own[kind if dot else None].append(text.strip().partition(".")[2] if dot else text)
    settings = parse_assignments(SETTINGS, own[None], "training")
    for kind in PARTS:
        settings |= _component_settings(kind, settings.get(kind), own[kind])
    return settings


def _component_settings(kind: str, name: str | None, assignments: list[str]) -> dict[str, Any]:
    declared = _declared(kind, name)
    if declared is None:
        if assignments:
            raise SettingError(
                f"'{kind}.{assignments[0].partition('=')[0]}' is given but no {kind} is chosen; "
                f"add --{kind} NAME"
            )
        return {}
    values = parse_assignments(declared, assignments, f"{kind} {name!r}")
    return {f"{kind}.{key}": value for key, value in values.items()}


def _declared(kind: str, name: str | None) -> tuple[Setting, ...] | None:
    """Settings of the component of that name; None where none is chosen by name."""
    if name is None or name == "none" or (kind, name) == ("splitter", "auto"):
        return None
    from treekit.training.plan import component_settings

    return component_settings(kind, name)


def settings_help(settings: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Rows of the table of settings: name, what it accepts, default, meaning."""
    from treekit.training.settings import SETTINGS

    rows = help_rows(SETTINGS)
    for kind in PARTS:
        declared = _declared(kind, settings.get(kind))
        rows += [(f"{kind}.{row[0]}", *row[1:]) for row in help_rows(declared or ())]
    return rows
