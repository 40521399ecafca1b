"""Printed summaries of models."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.json_reports import Estimate
from treekit.cli.terminal import escape_text, print_facts, print_heading, print_table

if TYPE_CHECKING:
    from treekit.model.model import Model


_MAX_SHOWN_LEVELS = 8
_FOREST_SETTINGS = ("trees", "bootstrap", "max_samples", "oob")


def format_count(number: int, noun: str) -> str:
    """Format a number with a noun: ``1 tree``, ``12,082 trees``, ``2 leaves``."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def get_size_facts(model: Model) -> list[tuple[str, str]]:
    """Return the numbers of trees, nodes and leaves, and the depth."""
    return [
        ("trees", f"{model.n_trees:,}"),
        ("nodes", f"{model.n_nodes:,}"),
        ("leaves", f"{model.n_leaves:,}"),
        ("depth", f"{model.depth:,}"),
    ]


def _get_schema_facts(model: Model) -> list[tuple[str, str]]:
    schema, task = model.schema, model.provenance.get("task")
    nominal = int(schema.nominal.sum())
    parts = f"{schema.n_features - nominal} numeric, {nominal} nominal"
    facts = [("columns", f"{schema.n_features} ({parts})")]
    names = [repr(output.name) for output in schema.outputs]
    if isinstance(task, dict) and schema.task == "regression":
        # A plugin's task, which predicts named numbers.
        facts += [(str(role), repr(name)) for role, name in task.items() if role != "name"]
        return [*facts, ("task", str(task.get("name"))), ("predictions", _join_some(names))]
    facts += [("target", name) for name in names]
    if schema.task == "regression":
        return [*facts, ("task", "regression")]
    for output in schema.outputs:
        classes = _join_some([repr(label) for label in output.classes])
        facts.append(("task", f"classification: {len(output.classes)} classes, {classes}"))
    return facts


def _get_policy_facts(model: Model) -> list[tuple[str, str]]:
    """Return the handling of missing and unseen values, the voting, and misclassification costs."""
    facts: list[tuple[str, str]] = [("missing", model.missing), ("unknown", model.unknown)]
    if model.combine == "sum":
        facts.append(("trees add up to", "margins" if model.margins else "numbers"))
    elif model.schema.task == "classification":
        facts.append(("voting", model.voting))
    if model.link != "identity":
        facts.append(("link", model.link))
    if model.costs is not None:
        shown = list(enumerate(model.schema.classes))[: _MAX_SHOWN_LEVELS + 1]
        costs = [
            f"{true!r}>{predicted!r}={model.costs[i, j]}"
            for (i, true), (j, predicted) in itertools.permutations(shown, 2)
        ]
        facts.append(("costs", _join_some(costs)))
    return facts


def _join_some(texts: list[str]) -> str:
    more = len(texts) - _MAX_SHOWN_LEVELS
    return ", ".join(texts[:_MAX_SHOWN_LEVELS]) + (f" and {more} more" if more > 0 else "")


def print_training(model: Model) -> None:
    """Print the training table, the size and the main settings of a trained model."""
    rows = model.provenance["training_table"]["rows"]
    print_facts("trained on", [("rows", f"{rows:,}"), *_get_schema_facts(model)])
    print_facts("model", get_size_facts(model))
    print_facts("settings", _list_chosen_settings(model))


def describe_estimate(model: Model) -> str:
    """Describe the score on new rows, as estimated in training, or say why there is none."""
    found = find_estimate(model)
    if found is None:
        return _explain_no_estimate(model)
    text = f"{found.measure} {found.value:{'.4g' if 'mean' in found.measure else '.4f'}}"
    if found.baseline is not None:
        what = "mean" if model.schema.task == "regression" else "most frequent class"
        text += f" ({what}: {found.baseline:{'.4f' if found.baseline else 'g'}})"
    return f"{text}, {found.how}"


def find_estimate(model: Model) -> Estimate | None:
    """Return the score on new rows, as estimated in training."""
    found, schema = model.provenance, model.schema
    oob = found.get("oob")
    if isinstance(oob, dict) and oob.get("rows"):
        how = f"out of bag on {oob['rows']:,} rows"
        if "pruned_by_the_same_rows" in oob:
            how += " (optimistic: trees were pruned on them)"
        if "accuracy" in oob:
            return Estimate("accuracy", oob["accuracy"], oob.get("majority"), how)
        return Estimate("R squared", oob["r2"], 0.0, how)
    risk, how = _find_pruner_risk(found)
    if risk is None:
        return None
    if schema.task == "regression":
        return Estimate("mean loss", risk, None, how)
    if model.costs is not None:
        return Estimate("mean cost", risk, None, how)
    weighted = model.settings.get("class_weight") or model.settings.get("priors")
    return Estimate(f"{'weighted ' if weighted else ''}accuracy", 1 - risk, None, how)


def _explain_no_estimate(model: Model) -> str:
    _, how = _find_pruner_risk(model.provenance)
    if how or model.schema.more:
        return how or "not estimated"
    target = model.schema.target
    return f"not estimated; run: treekit evaluate TABLE --target {target!r} --like MODEL"


def _find_pruner_risk(found: dict[str, Any]) -> tuple[float | None, str]:
    """Return the chosen tree's risk, as reported by a built-in pruner, and how it was estimated."""
    pruned = found.get("pruner")
    if not isinstance(pruned, dict):
        return None, ""
    optimistic = "optimistic: it selected the pruned tree"
    if "weight_judged_by" in pruned:
        grown, judged = pruned["weight_grown_on"], pruned["weight_judged_by"]
        rows = found.get("training_table", {}).get("rows")
        noun = "rows" if grown + judged == rows else "weight of rows"
        how = f"validated on {judged:,.6g} {noun}, grown on {grown:,.6g} ({optimistic})"
        return pruned.get("held_risk"), how
    steps = pruned.get("sequence")
    if isinstance(steps, dict) and pruned.get("alpha") in steps.get("alpha", ()):
        at = steps["alpha"].index(pruned["alpha"])
        for key, how in (("cv_risk", "cross-validated"), ("held_risk", "on validation rows")):
            if key in steps:
                return float(steps[key][at]), f"{how} ({optimistic})"
    return None, ""


def _list_chosen_settings(model: Model) -> list[tuple[str, str]]:
    """Return the settings that differ from their defaults, the components and the seed."""
    from treekit.training.settings import select_chosen_settings

    chosen = select_chosen_settings(model.settings)
    return [(key, text) for key, text in _list_settings(model) if key in chosen]


def _list_settings(model: Model) -> list[tuple[str, str]]:
    """Return all settings but those of forests in a tree, as values that ``--set`` accepts."""
    idle = _FOREST_SETTINGS if model.settings.get("ensemble") == "tree" else ()
    return [
        (key, _format_setting(model, key, value))
        for key, value in model.settings.items()
        if key not in idle
    ]


def _format_setting(model: Model, key: str, value: Any) -> str:
    from treekit.training.class_weights import format_named_numbers, get_label_names

    if key == "costs" and model.costs is not None:
        names = get_label_names(model.schema.classes)
        pairs = zip(itertools.product(names, names), model.costs.ravel().tolist(), strict=True)
        value = {f"{true}>{other}": cost for (true, other), cost in pairs if true != other}
    if isinstance(value, dict) and all(type(number) in (int, float) for number in value.values()):
        return escape_text(format_named_numbers(value))
    return _format_value(value)


def iterate_provenance(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a provenance; nested objects have dotted names.

    The provenance in a file may be any JSON: no structure is assumed.
    """
    for key, value in found.items():
        if key == "components" and isinstance(value, list):
            yield from map(_format_component, value)
        elif isinstance(value, dict):
            for name, part in value.items():
                size = _count_rows(part)
                text = _format_value(part) if size is None else format_count(size, "row")
                yield f"{key}.{name}", text
        else:
            yield key, _format_value(value)


def _count_rows(value: Any) -> int | None:
    """Return the length of a table (a dict of lists of equal length), None for anything else."""
    if not isinstance(value, dict) or not all(isinstance(part, list) for part in value.values()):
        return None
    lengths = {len(part) for part in value.values()}
    return lengths.pop() if len(lengths) == 1 else None


def _print_tables(found: dict[str, Any]) -> None:
    """Print the tables in a model's training results, such as the sequence of pruned trees."""
    for key, parts in found.items():
        for name, table in parts.items() if isinstance(parts, dict) else ():
            if _count_rows(table) is not None:
                click.echo()
                print_heading(f"{key}.{name}")
                rows = zip(*table.values(), strict=True)
                print_table(list(table), [[_format_value(cell) for cell in row] for row in rows])


def _format_component(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict):
        return "component", _format_value(value)
    part = {key: str(value.get(key, "")) for key in ("kind", "name", "distribution", "version")}
    source = f"{part['distribution']} {part['version']}".strip()
    return part["kind"] or "component", f"{part['name']} ({source or 'given as a record'})"


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return escape_text(value)
    return "none" if value is None else json.dumps(value, ensure_ascii=False, default=repr)


def print_inspection(model: Model, file_sha256: str) -> None:
    """Print the contents of a model file, except for the trees."""
    from treekit.model.model import hash_model

    digests = [("model_sha256", hash_model(model)), ("file_sha256", file_sha256)]
    print_facts(
        "schema",
        [*_get_schema_facts(model), ("type", model.schema.dtype), *_get_policy_facts(model)],
    )
    click.echo()
    print_heading("columns")
    columns = [
        [c.name, c.kind, _join_some([repr(level) for level in c.levels])]
        for c in model.schema.columns
    ]
    print_table(["column", "kind", "levels"], columns)
    click.echo()
    print_facts("model", [*get_size_facts(model), *digests])
    for name, pairs in (
        ("settings", _list_settings(model)),
        ("provenance", list(iterate_provenance(model.provenance))),
    ):
        if pairs:
            click.echo()
            print_facts(name, pairs)
    _print_tables(model.provenance)
