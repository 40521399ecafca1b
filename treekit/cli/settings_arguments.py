"""Parse ``KEY=VALUE`` texts as settings of training and of the chosen components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from treekit.contracts import Setting
from treekit.errors import SettingError
from treekit.settings import help_rows, parse_assignments

if TYPE_CHECKING:
    from treekit.training.settings import Preset


COMPONENT_KINDS = ("criterion", "splitter", "pruner")

SETTING_OPTIONS = (
    *("algorithm", "ensemble", "trees", *COMPONENT_KINDS, "seed"),
    *("max_depth", "max_leaves", "min_weight_leaf", "max_features", "missing"),
)
"""Settings with an option of their own."""


def parse_training_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return typed settings, as accepted by `treekit.train`.

    Parameters
    ----------
    options : mapping
        The options of a command: `SETTING_OPTIONS`, None = not given, and ``assignments``, a
        sequence of ``KEY=VALUE``; settings of components are ``criterion.KEY=VALUE``.

    Raises
    ------
    SettingError
        For unknown names, components and settings, values out of range, and component settings
        (``pruner.KEY``) without a selected component (``pruner``).
    """
    from treekit.training.settings import SETTINGS

    own: dict[str | None, list[str]] = {kind: [] for kind in COMPONENT_KINDS}
    own[None] = [f"{name}={options[name]}" for name in SETTING_OPTIONS if options[name] is not None]
    for text in options["assignments"] or ():
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
        name = _get_chosen_name(kind, settings)
        declared = _get_declared_settings(kind, name)
        if declared is None and own[kind]:
            raise SettingError(
                f"'{kind}.{own[kind][0].partition('=')[0]}' is given, but no {kind} is chosen; "
                f"add --{kind} NAME"
            )
        values = parse_assignments(declared or (), own[kind], f"{kind} {name!r}")
        settings |= {f"{kind}.{key}": value for key, value in values.items()}
    return settings


def _get_chosen_name(kind: str, settings: Mapping[str, Any]) -> str | None:
    """Return the component name that `settings` has for a kind, else that of the algorithm."""
    from treekit.training.settings import PRESETS

    if kind in settings or settings.get("algorithm") is None:
        named: str | None = settings.get(kind)
        return named
    algorithm = PRESETS[settings["algorithm"]]
    return {**algorithm.settings, **algorithm.single_tree}.get(kind)


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

    name = settings.get("algorithm")
    own = {} if name is None else {"algorithm": str(name)}
    for key, text in _list_preset_values(PRESETS[name]) if name is not None else ():
        own[key] = f"{own[key]}, {text}" if key in own else text
    shown = {*COMMON_SETTINGS, *settings, *own}
    rows = [row for row in help_rows(SETTINGS) if every or row[0] in shown]
    hidden = len(SETTINGS) - len(rows)
    for kind in COMPONENT_KINDS:
        declared = _get_declared_settings(kind, _get_chosen_name(kind, settings))
        rows += [(f"{kind}.{row[0]}", *row[1:]) for row in help_rows(declared or ())]
    return [
        (key, accepts, own.get(key, default), meaning) for key, accepts, default, meaning in rows
    ], hidden


def list_algorithm_rows() -> list[tuple[str, str, str]]:
    """Return the rows of the table of algorithms: name, meaning, settings."""
    from treekit.training.settings import PRESETS

    return [
        (name, algorithm.summary, ", ".join(map("=".join, _list_preset_values(algorithm))))
        for name, algorithm in PRESETS.items()
    ]


def _list_preset_values(algorithm: Preset) -> Iterator[tuple[str, str]]:
    """Yield the settings of an algorithm as texts; those of one task are repeated for each."""
    for key, value in {**algorithm.settings, **algorithm.single_tree}.items():
        yield key, _format_default(value)
    for task, values in algorithm.by_task.items():
        for key, value in values.items():
            yield key, f"{_format_default(value)} ({task})"


def _format_default(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
