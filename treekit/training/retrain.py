"""Settings of a trained model for training again, and the plugins that they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from treekit import registry
from treekit.errors import PluginError, SettingError
from treekit.model.model import Model, as_model
from treekit.model.model_file import load
from treekit.model.tree import Split
from treekit.training.plan import COMPONENT_KINDS


def get_settings_like(like: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a model was trained with, updated by those given.

    Parameters
    ----------
    like : Model, fitted treekit estimator, or path of a model file
    given : mapping
        If it chooses another criterion, splitter or pruner, the settings of that component
        start from their defaults.

    Raises
    ------
    PluginError
        If a component is from a plugin that is not installed; names the distribution and
        version recorded in the model.
    SettingError
        If the model is a rule list, or a component was given as a record and no installed
        plugin offers it.
    """
    model = load(like) if isinstance(like, str | Path) else as_model(like)
    if any(Split.RULE in tree.kind for tree in model.trees):
        raise SettingError(
            "the model is a rule list, which has no training settings; give the model that the "
            "rules came from"
        )
    chosen = [part for part in COMPONENT_KINDS if part in given or "algorithm" in given]
    require_plugins(model, given)
    settings = {
        key: value for key, value in model.settings.items() if key.partition(".")[0] not in chosen
    }
    return settings | dict(given)


def require_plugins(model: Model, given: Mapping[str, Any]) -> None:
    """Raise unless all components of a model that `given` does not replace are installed."""
    for part in _iterate_components(model):
        kind, name = part["kind"], part["name"]
        if kind in given or "algorithm" in given:
            continue
        offered = [c.distribution for c in registry.components(kind) if c.name == name]
        if part["distribution"] in offered:
            continue
        if not part["distribution"]:
            raise SettingError(
                f"the model was trained with {kind} {name!r}, which was passed as an object and is "
                f"not in any installed plugin; pass the object again: {kind}=..."
            )
        release = f"{part['distribution']}=={part['version']}"
        raise PluginError(
            f"the model was trained with {kind} {name!r} of the plugin {part['plugin']!r} "
            f"({part['distribution']} {part['version']}), which is not installed; to train again, "
            f"install it (pip install {release!r}), or choose another {kind}.  Predicting, "
            "exporting and verifying need no plugin"
        )


def _iterate_components(model: Model) -> Iterator[dict[str, str]]:
    """Yield the components in a model's provenance, which may be any JSON."""
    found = model.provenance.get("components", ())
    for part in found if isinstance(found, list | tuple) else ():
        if isinstance(part, dict) and part.get("kind") in COMPONENT_KINDS:
            keys = ("kind", "name", "plugin", "distribution", "version")
            yield {key: str(part.get(key, "")) for key in keys}
