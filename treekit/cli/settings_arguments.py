"""Parse ``KEY=VALUE`` texts as settings of training and of the chosen components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from treekit.contracts import Setting
from treekit.errors import SettingError
from treekit.settings import help_rows, parse_assignments

if TYPE_CHECKING:
    from treekit.training.settings import Preset


COMPONENT_KINDS = ("criterion", "splitter", "pruner")


def parse_training_settings(
    options: Mapping[str, str | None], assignments: Sequence[str]
) -> dict[str, Any]:
    """Return typed settings, as accepted by `treekit.train`.

    Parameters
    ----------
    options : mapping
        Settings with an option of their own; None = not given.
    assignments : sequence of str
        ``KEY=VALUE``; settings of components as ``criterion.KEY=VALUE``.

    Raises
    ------
    SettingError
        For unknown names, components and settings, values out of range, and component settings
        (``pruner.KEY``) without a selected component (``pruner``).
    """
    from treekit.training.settings import SETTINGS

    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    own: dict[str | None, list[str]] = {kind: [] for kind in (None, *COMPONENT_KINDS)}
    own[None] = given
    for text in assignments:
        key = text.partition("=")[0].strip()
        kind, dot, _ = key.partition(".")
        if dot and kind not in COMPONENT_KINDS:
            raise SettingError(
                f"unknown setting {key!r}; a component's own settings begin with "
                + ", ".join(f"'{part}.'" for part in COMPONENT_KINDS)
            )
        own[kind if dot else None].append(text.strip().partition(".")[2] if dot else text)
    settings = parse_assignments(SETTINGS, own[None], "training")
    for kind in COMPONENT_KINDS:
        settings |= _parse_component_settings(kind, _get_chosen_name(kind, settings), own[kind])
    return settings


def _get_chosen_name(kind: str, settings: Mapping[str, Any]) -> str | None:
    """Return the component name that `settings` has for a kind, else that of the algorithm."""
    from treekit.training.settings import PRESETS

    if kind in settings or settings.get("algorithm") is None:
        named: str | None = settings.get(kind)
        return named
    algorithm = PRESETS[settings["algorithm"]]
    return {**algorithm.settings, **algorithm.single_tree}.get(kind)


def _parse_component_settings(
    kind: str, name: str | None, assignments: list[str]
) -> dict[str, Any]:
    declared = _get_declared_settings(kind, name)
    if declared is None:
        if assignments:
            raise SettingError(
                f"'{kind}.{assignments[0].partition('=')[0]}' is given, but no {kind} is chosen; "
                f"add --{kind} NAME"
            )
        return {}
    values = parse_assignments(declared, assignments, f"{kind} {name!r}")
    return {f"{kind}.{key}": value for key, value in values.items()}


def _get_declared_settings(kind: str, name: str | None) -> tuple[Setting, ...] | None:
    """Return the settings that component `name` declares; None if `name` selects no component."""
    if name is None or name == "none" or (kind, name) == ("splitter", "auto"):
        return None
    from treekit.training.plan import get_component_settings

    return get_component_settings(kind, name)


def list_setting_rows(
    settings: Mapping[str, Any], *, every: bool
) -> tuple[list[tuple[str, str, str, str]], int]:
    """Return the rows of the settings table, and the number of settings left out.

    A row is name, accepted values, default and meaning.  The defaults are those of the algorithm
    in `settings`, if one is named.  Unless `every` is true, only common settings, those of
    `settings` and of its algorithm, and those of named components are included.
    """
    from treekit.training.settings import COMMON_SETTINGS, PRESETS, SETTINGS

    shown = {*COMMON_SETTINGS, *settings}
    if settings.get("algorithm") is not None:
        chosen = PRESETS[settings["algorithm"]]
        shown |= {*chosen.settings, *chosen.single_tree, *chain(*chosen.by_task.values())}
    rows = [row for row in help_rows(SETTINGS) if every or row[0] in shown]
    hidden = len(SETTINGS) - len(rows)
    for kind in COMPONENT_KINDS:
        declared = _get_declared_settings(kind, _get_chosen_name(kind, settings))
        rows += [(f"{kind}.{row[0]}", *row[1:]) for row in help_rows(declared or ())]
    name = settings.get("algorithm")
    if name is None:
        return rows, hidden
    algorithm = PRESETS[name]
    own = {**algorithm.settings, **algorithm.single_tree, "algorithm": name}
    for values in algorithm.by_task.values():
        own |= {key: _format_by_task(algorithm.by_task, key) for key in values}
    rows = [
        (key, accepts, _format_default(own[key]) if key in own else default, meaning)
        for key, accepts, default, meaning in rows
    ]
    return rows, hidden


def list_algorithm_rows() -> list[tuple[str, str, str]]:
    """Return the rows of the table of algorithms: name, meaning, settings."""
    from treekit.training.settings import PRESETS

    return [
        (name, algorithm.summary, ", ".join(_iterate_settings(algorithm)))
        for name, algorithm in PRESETS.items()
    ]


def _iterate_settings(algorithm: Preset) -> Iterator[str]:
    for key, value in {**algorithm.settings, **algorithm.single_tree}.items():
        yield f"{key}={_format_default(value)}"
    for task, values in algorithm.by_task.items():
        yield from (f"{key}={_format_default(value)} ({task})" for key, value in values.items())


def _format_by_task(by_task: Mapping[Any, Mapping[str, Any]], key: str) -> str:
    """Format the values of a setting for each task as one text."""
    return ", ".join(
        f"{_format_default(values[key])} ({task})"
        for task, values in by_task.items()
        if key in values
    )


def _format_default(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
