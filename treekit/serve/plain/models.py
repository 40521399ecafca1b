"""What the models of a server are, for a page that asks for rows and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treekit.data.schema import level_text
from treekit.serve.models.repository import Entry, Repository
from treekit.serve.models.served import Served

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["described", "models_said"]


def models_said(repository: Repository, facts: dict[Served, dict[str, Any]]) -> list[Any]:
    """Each model that is known, by name: what its newest loaded version is, and its state.

    Parameters
    ----------
    repository : Repository
    facts : dict
        `described` of what is loaded.
    """
    entries: dict[str, list[Entry]] = {}
    for entry in repository.index():
        entries.setdefault(entry.name, []).append(entry)
    newest = {served.name: served for served in reversed([*facts])}
    said = []
    for name, own in entries.items():
        served = newest.get(name)
        versions = [one.version for one in facts if one.name == name]
        one: dict[str, Any] = {
            "name": name,
            "version": versions[0] if versions else "",
            "versions": versions,
            "state": "READY" if versions else "UNAVAILABLE",
            "reason": next((entry.reason for entry in own if entry.reason), ""),
        }
        said.append(one | facts[served] if served else one)
    return said


def described(served: Served) -> dict[str, Any]:
    """All that does not change of a model that is loaded; linear in its nodes."""
    if served.model is None:
        return {
            "platform": served.platform,
            "inputs": [spec._asdict() for spec in served.inputs],
            "outputs": [spec._asdict() for spec in served.outputs],
        }
    model = served.model
    schema = model.schema
    return {
        "platform": served.platform,
        "task": schema.task,
        "targets": [
            {"name": output.name, "classes": list(map(level_text, output.classes))}
            for output in schema.outputs
        ],
        "columns": _columns(model),
        "dtype": schema.dtype,
        "missing": model.missing,
        "unknown": model.unknown,
        "marks": list(schema.missing_marks),
        "trees": model.n_trees,
        "leaves": model.n_leaves,
        "depth": model.depth,
    }


def _columns(model: Model) -> list[dict[str, Any]]:
    """Columns, with the least and the largest number that they are compared with."""
    from treekit.explain.decision_path import thresholds_of

    said = []
    for column, own in zip(
        model.schema.columns, thresholds_of(model.trees, model.schema), strict=True
    ):
        low, high = (float(own[0]), float(own[-1])) if len(own) else (None, None)
        said.append(
            {
                "name": column.name,
                "kind": column.kind,
                "levels": list(column.levels),
                "low": low,
                "high": high,
            }
        )
    return said
