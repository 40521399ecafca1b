"""The public API of treekit as text: names, commands, settings.

Each function returns one snapshot of short, sorted lines for readable diffs: an entry starts
with an unindented line, which git shows in the header of each hunk.  The texts do not depend on
installed plugins, the terminal or the environment.

Only `RECORDS` and `GROUP_ORDER` name private modules.  Update them after moving a module; the
snapshots do not change.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import pkgutil
import re
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import click
from click.testing import CliRunner

import treekit
from tests.snapshots.signatures import call_lines, entry_lines, value_text
from treekit import registry
from treekit.contracts import CONTRACT_VERSION, Setting
from treekit.hookspecs import PROJECT
from treekit.registry.kinds import KINDS

__all__ = [
    "FACADES",
    "commands",
    "list_private_names",
    "plain_environment",
    "public_names",
    "section",
    "settings",
    "small_model",
]

ROOT = Path(__file__).parents[2]
PACKAGE = Path(treekit.__file__).parent
WIDTH = 98
"""Width of help texts: a terminal of 100 columns minus click's margin."""

FACADES = (
    "treekit",
    "treekit.data",
    "treekit.errors",
    "treekit.hookspecs",
    "treekit.contracts",
    "treekit.splitting",
    "treekit.kernels.records",
    "treekit.components.pruning",
    "treekit.exporting",
    "treekit.verify.runtime",
    "treekit.interop",
    "treekit.interop.tree_assembly",
    "treekit.model.builder",
    "treekit.documents",
    "treekit.rules",
    "treekit.rule_learning",
    "treekit.explain",
    "treekit.testing",
)
"""Modules for users and, from ``hookspecs`` on, those of the contract for authors of plugins.

The names in their ``__all__`` are public, and no others.
"""

RECORDS = (
    "treekit.estimators.tree_arrays:TreeArrays",
    "treekit.export.languages:Profile",
    "treekit.export.languages:TextSetting",
    "treekit.export.languages:Verify",
    "treekit.grow.recipe:GrownTree",
    "treekit.kernels.records:Rows",
    "treekit.kernels.records:Table",
    "treekit.model.row_scorer:Scorer",
    "treekit.model.tree:Split",
    "treekit.model.tree:Tree",
    "treekit.components.pruning:Losses",
    "treekit.rules.language:Language",
    "treekit.training.importance:Importances",
    "treekit.training.split_scores:SplitScore",
    "treekit.training.split_scores:SplitScores",
    "treekit.verify.runtime:Job",
    "treekit.verify.runtime:Runner",
    "treekit.verify.runtime:Runtime",
)
"""Classes used by public functions or in ``language.toml``, listed without their modules."""

PLACES = {
    "algorithms": "treekit.training.settings:PRESETS",
    "first line of rules": "treekit.rules.language:FIRST_LINE",
    "language of rules": "treekit.rules.language:load_language",
    "languages of rules": "treekit.rules.language:list_languages",
    "model": "treekit.model.model:make_model",
    "oldest contract": "treekit.registry.discovery:OLDEST_CONTRACT",
    "runners of verify": "treekit.verify.run_artifact:list_runners",
}
"""Objects shown by commands that have no public path."""


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


@contextmanager
def plain_environment() -> Iterator[None]:
    """Hide installed plugins and the environment variables that affect treekit."""
    hidden = ("TREEKIT_", "PROMETHEUS_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    with (
        mock.patch.dict(os.environ, kept, clear=True),
        mock.patch.object(metadata, "distributions", return_value=()),
    ):
        registry.configure()
        try:
            yield
        finally:
            registry.configure()


def small_model(**policies: Any) -> Any:
    """Build a tree with one split."""
    from treekit.data.schema import Column, Schema
    from treekit.model.builder import build_tree, leaf, threshold

    schema = Schema((Column("x"),), classes=("no", "yes"))
    tree = build_tree(threshold("x", 0.5, leaf([1.0, 0.0]), leaf([0.0, 1.0])), schema)
    return _load(PLACES["model"])(schema, [tree], **policies)


def section(title: str, lines: Iterable[str], indent: str = "") -> Iterator[str]:
    """Yield a title in brackets, followed by lines."""
    yield from ["", f"[{title}]", *(f"{indent}{line}" for line in lines)]


def _text(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"# {title}, written by: python -m tests.snapshots", *lines, ""])


# ------------------------------------------------------------------ names


def public_names() -> str:
    """Return the names of the façades with their signatures."""
    with plain_environment():
        named = [
            (f"{path}.{name}", _value(f"{path}.{name}"))
            for path in FACADES
            for name in _names(importlib.import_module(path))
        ]
        named += [(place.rpartition(":")[2], _load(place)) for place in RECORDS]
        public = {id(value): name for name, value in named if isinstance(value, type)}
        shown: dict[int, str] = {}
        entries = [_entry(name, value, public, shown) for name, value in named]
        return _text("Public names", _spaced(entries))


def _value(name: str) -> Any:
    """Return the object of a dotted name, or the function of a callable module."""
    value = pkgutil.resolve_name(name)
    if isinstance(value, types.ModuleType) and callable(value):  # treekit.export
        value = getattr(value, name.rpartition(".")[2])
    return value


def _names(module: types.ModuleType) -> list[str]:
    """Return the public names of a module, including hooks."""
    public = getattr(module, "__all__", ())
    return sorted({*public, *(name for name in vars(module) if _is_hook(name))})


def _is_hook(name: str) -> bool:
    return name.startswith("treekit_")


def _entry(name: str, value: Any, public: Mapping[int, str], shown: dict[int, str]) -> list[str]:
    """Return the lines of a name, or a reference to the same object shown before."""
    lasting = isinstance(value, type) or inspect.isroutine(value)  # compared by identity
    if lasting and shown.setdefault(id(value), name) != name:
        return [f"{name} is {shown[id(value)]}"]
    return entry_lines(name, value, public)


def _spaced(entries: Iterable[list[str]]) -> Iterator[str]:
    """Yield the lines of entries, with empty lines around entries of several lines."""
    before = 2
    for entry in entries:
        if before > 1 or len(entry) > 1:
            yield ""
        yield from entry
        before = len(entry)


def list_private_names(source: str) -> set[str]:
    """Return the names of treekit that Python code uses, and that no façade has."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            used = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            used = {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "treekit":
            used = {ast.unparse(node)}
        else:
            continue
        found |= {name for name in used if name.partition(".")[0] == "treekit"}
    return found - _list_public_names()


@functools.cache
def _list_public_names() -> set[str]:
    names = {f"{path}.{name}" for path in FACADES for name in _names(importlib.import_module(path))}
    return names | {*FACADES} | {place.replace(":", ".") for place in RECORDS}


# ------------------------------------------------------------------ commands


def commands() -> str:
    """Return the help of all commands, and the tables of ``--help-settings``."""
    from treekit.cli import main

    with plain_environment():
        return _text("Commands", _command_lines(main, "treekit", None))


def _command_lines(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[str]:
    given = {**command.context_settings, "terminal_width": WIDTH}
    context = click.Context(command, info_name=name, parent=parent, **given)
    yield from ["", f"$ {context.command_path} --help"]
    yield from _indented(command.get_help(context))
    if any("--help-settings" in parameter.opts for parameter in command.params):
        yield from ["", f"$ {context.command_path} --help-settings"]
        words = [*context.command_path.split()[1:], "--help-settings"]
        words += ["all"] if command.name == "train" else []
        result = CliRunner().invoke(context.find_root().command, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        # Collapse the padding of columns, so one changed cell does not change every line.
        yield from _indented(re.sub(r"(?<=\S) {2,}", "  ", result.output))
    if isinstance(command, click.Group):
        for inner in sorted(command.commands):
            yield from _command_lines(command.commands[inner], inner, context)


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}".rstrip() for line in text.rstrip().splitlines())


# ------------------------------------------------------------------ settings


def settings() -> str:
    """Return settings, components, hooks, algorithms, environment variables."""
    with plain_environment():
        return _text("Settings", _settings_lines())


def _settings_lines() -> Iterator[str]:
    from treekit.training import SETTINGS

    yield from section("settings of training", _setting_lines(SETTINGS))
    for kind in KINDS:
        for component in sorted(registry.components(kind), key=lambda one: one.name):
            if component.distribution == "treekit":
                title = f"{kind} {component.name}"
                yield from section(title, _component_lines(component.record), "    ")
    yield from section("algorithms", _algorithm_lines())
    yield from section("hooks", _hook_lines())
    yield from section("contract", _contract_lines())
    yield from section("values of templates", _template_lines())
    yield from section("languages of rules", _language_lines())
    yield from section("runtimes of treekit verify", _runtime_lines())
    yield from section("environment variables", _variable_lines())
    yield from section("package", _package_lines())


def _setting_lines(declared: Iterable[Setting]) -> Iterator[str]:
    for setting in sorted(declared, key=lambda one: one.name):
        yield f"{setting.name}: {_types_text(setting)} = {value_text(setting.default)}"
        if setting.choices:
            yield f"    choices: {', '.join(map(value_text, setting.choices))}"
        for name in ("minimum", "above", "maximum"):
            if getattr(setting, name) is not None:
                yield f"    {name}: {value_text(getattr(setting, name))}"
        yield f"    meaning: {setting.help}"


def _types_text(setting: Setting) -> str:
    given = type(setting.default) if setting.type is None else setting.type
    kinds = {*(given if isinstance(given, tuple) else (given,)), type(setting.default)}
    return " or ".join(sorted("none" if one is type(None) else one.__name__ for one in kinds))


def _component_lines(record: Any) -> Iterator[str]:
    yield f"summary: {record.summary}"
    for name in ("suffix", "task", "costs"):
        if hasattr(record, name):
            yield f"{name}: {value_text(getattr(record, name))}"
    yield from (f"exempt from {law}" for law in sorted(record.exempt))
    if record.settings:
        yield "settings:"
        yield from (f"    {line}" for line in _setting_lines(record.settings))


def _algorithm_lines() -> Iterator[str]:
    for name, algorithm in sorted(_load(PLACES["algorithms"]).items()):
        yield f"{name}: {algorithm.summary}"
        parts = {"": algorithm.settings, " (a tree alone)": algorithm.single_tree}
        parts |= {f" ({task})": given for task, given in algorithm.by_task.items()}
        for mark, given in parts.items():
            yield from (f"    {key} = {value_text(given[key])}{mark}" for key in sorted(given))


def _hook_lines() -> Iterator[str]:
    from treekit import hookspecs

    for name in filter(_is_hook, _names(hookspecs)):
        yield from call_lines(name, getattr(hookspecs, name))


def _contract_lines() -> list[str]:
    return [
        f"version: {CONTRACT_VERSION}",
        f"oldest version: {_load(PLACES['oldest contract'])}",
        f"group of entry points: {PROJECT}",
    ]


def _template_lines() -> list[str]:
    """List the variables of user templates in any form of a model."""
    from treekit.exporting import Language, template_values

    names: set[str] = set()
    for missing, form in (("direction", "table"), ("direction", "if_else"), ("fractional", "auto")):
        forms = ("table",) if form == "auto" else ("table", "if_else")
        language, model = Language(strings="json"), small_model(missing=missing)
        for cells in (False, True):
            values = template_values(
                model, "m", language, forms, form, leaf_nodes=True, cells=cells
            )
            for name, value in values.items():
                inner = value if isinstance(value, dict) else {}
                names |= {name, *(f"{name}.{key}" for key in inner)}
    return sorted(names)


def _language_lines() -> Iterator[str]:
    """Yield the languages, and the phrases with fields that user catalogues also have."""
    yield f"first line: {_load(PLACES['first line of rules'])}"
    yield f"codes: {', '.join(sorted(_load(PLACES['languages of rules'])()))}"
    phrases = _load(PLACES["language of rules"])("en").phrases
    for key in sorted(phrases):
        fields = sorted(set(re.findall(r"\{([a-z_][a-z_0-9]*)\}", phrases[key])))
        yield f"phrase {key}({', '.join(fields)})"


def _runtime_lines() -> Iterator[str]:
    for runner in sorted(_load(PLACES["runners of verify"])(), key=lambda one: one.kind):
        names = ", ".join(runtime.name for runtime in runner.runtimes)
        yield f"{runner.kind} ({runner.suffix}): {names}"


_VARIABLE = re.compile(r"\bTREEKIT_[A-Z][A-Z_0-9]*|(?<=environ\.get\(\")\w+|(?<=environ\[\")\w+")


def _variable_lines() -> list[str]:
    """Find environment variables in the source code of treekit."""
    sources = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    return sorted({name for source in sources for name in _VARIABLE.findall(source)})


def _package_lines() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield f"name: {project['name']}"
    yield f"requires Python: {project['requires-python']}"
    yield from (f"extra {name}" for name in sorted(project["optional-dependencies"]))
    yield from (f"command {name}: {place}" for name, place in sorted(project["scripts"].items()))
