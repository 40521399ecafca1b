"""Settings at the ends of what they are declared to accept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from treekit import registry
from treekit.contracts import Layout, Setting
from treekit.errors import PluginError, SettingError
from treekit.record_checks import declared_settings
from treekit.testing.laws import Broken, broken, inapplicable
from treekit.testing.report import Law

__all__ = ["BOUNDS", "try_bounds"]

BOUNDS = Law(
    "settings-work-at-their-bounds",
    "Every value that a setting's declaration accepts works: its bounds, and each of its choices.",
    "the Setting: a bound that the formula cannot bear is declared with `above`, or further in",
)


def try_bounds(
    record: Any,
    given: Mapping[str, Any],
    use: Callable[[Any], None],
    layout: Layout | None = None,
) -> None:
    """Make a component with each setting at its ends, and use what it makes.

    Parameters
    ----------
    record : Criterion, Splitter or Pruner
    given : mapping
        The settings under which it is judged, one of which is varied at a time.
    use : callable
        Puts functions to use; raises `Broken`.
    layout : Layout, optional
        Of a criterion's task.
    """
    varied = [(s, value) for s in declared_settings(record) for value in _ends(s)]
    if not varied:
        inapplicable("it declares no setting that has bounds or choices")
    for setting, value in varied:
        settings = {**given, setting.name: value}
        call = f"make({', '.join(f'{key}={own!r}' for key, own in settings.items())})"
        try:
            functions, _ = registry.make(record, settings, layout)
        except SettingError:  # a combination that the component refuses by name
            continue
        except PluginError as error:
            broken(call, error, "functions")
        try:
            use(functions)
        except Broken as found:
            broken(f"{call}, then {found.example}", found.got, found.expected, look=found.look)


def _ends(setting: Setting) -> Iterator[Any]:
    """Bounds, choices, and both truth values, but for the default."""
    kinds = setting.type if isinstance(setting.type, tuple) else (setting.type,)
    kind = type(setting.default) if setting.type is None else kinds[0]
    ends: list[Any] = list(setting.choices)
    ends += [True, False] if kind is bool else []
    ends += [bound for bound in (setting.minimum, setting.maximum) if bound is not None]
    if setting.above is not None:
        ends.append(setting.above + 1e-6 * max(1.0, abs(setting.above)))
    if type(None) in kinds:
        ends.append(None)
    for end in ends:
        value = end
        if kind is float and type(end) is int:
            value = float(end)
        if kind is int and type(end) is float:
            value = math.ceil(end)
        if value != setting.default:
            yield value
