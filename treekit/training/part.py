"""One chosen component: its record, and its functions under its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treekit import registry
from treekit.contracts import (
    Criterion,
    CriterionFunctions,
    Layout,
    Pruner,
    PrunerFunctions,
    Setting,
    Splitter,
    SplitterFunctions,
)
from treekit.data.dataset import Dataset
from treekit.records import declared_settings
from treekit.training.tasks import fit_layout

__all__ = ["PARTS", "Part", "component_settings", "make_part"]

PARTS = ("criterion", "splitter", "pruner")
"""What a training chooses by name; their own settings begin with these words and a dot."""


@dataclass(frozen=True)
class Part:
    """A component under its settings.

    Attributes
    ----------
    record : Criterion, Splitter or Pruner
    functions
        What its ``make`` returned.
    settings : dict
    origin : dict
        Kind, name, plugin, distribution and version.
    layout : Layout or None
        Of a criterion's own task, fitted to the training rows.
    """

    record: Any
    functions: Any
    settings: dict[str, Any]
    origin: dict[str, str]
    layout: Layout | None = None


def component_settings(
    kind: str, wanted: str | Criterion | Splitter | Pruner
) -> tuple[Setting, ...]:
    """The settings that a component declares, for reading ``KEY=VALUE`` texts."""
    resolver: Any = getattr(registry, kind)
    return declared_settings(resolver(wanted))


def make_part(
    kind: str, settings: Mapping[str, Any], given: Mapping[str, Any], dataset: Dataset
) -> Part:
    """The component that `settings` choose of a kind, under its own settings among `given`."""
    resolver: Any = getattr(registry, kind)
    record = resolver(settings[kind])
    prefix = f"{kind}."
    wanted = {key[len(prefix) :]: v for key, v in given.items() if key.startswith(prefix)}
    functions: CriterionFunctions | SplitterFunctions | PrunerFunctions
    layout = fit_layout(record, wanted, dataset)
    functions, made = registry.make(record, wanted, layout)
    return Part(record, functions, made, registry.origin(record), layout)
