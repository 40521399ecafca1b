"""``treekit plugins`` and ``treekit plugin``: list, create and check plugins."""

from __future__ import annotations

import shlex
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.json_reports import ComponentRecord, PluginsReport, print_json
from treekit.cli.options import assignments_option, json_option
from treekit.cli.terminal import escape_text, print_heading, print_table
from treekit.errors import SettingError, TreekitWarning
from treekit.settings import parse_assignments, suggestion

if TYPE_CHECKING:
    from treekit.registry.discovery import Component
    from treekit.testing.report import Report


# ---------------------------------------------------------------- treekit plugin

KINDS = (
    "criterion",
    "splitter",
    "pruner",
    "exporter",
    "importer",
    "document",
    "simplifier",
    "explainer",
)


@click.group("plugin", short_help="Create or check a plugin.")
def plugin_group() -> None:
    """Create or check a plugin; `treekit plugins` lists those installed."""


@plugin_group.command("new", short_help="Create a working plugin package to start from.")
@click.argument("name")
@click.option(
    *("--kind", "kind"),
    required=True,
    metavar="KIND",
    help=f"Component to create: {', '.join(KINDS[:-1])} or {KINDS[-1]}.",
)
@click.option(
    *("--dir", "directory"),
    default=".",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Existing folder in which to create the package folder.  [default: current folder]",
)
def new_command(name: str, kind: str, directory: Path) -> None:
    """Create treekit-NAME, an installable package with one working component and its tests."""
    from treekit.scaffold import new_plugin

    made = new_plugin(name, kind, directory)
    for file in made.files:
        click.echo(escape_text(made.folder / file))
    click.echo("\nThe package works as created. Next steps:\n")
    click.echo(f"  cd {_quote_path(made.folder)}")
    click.echo("  pip install -e '.[test]'")
    click.echo("  pytest")


def _quote_path(path: Path) -> str:
    """Quote a path for a shell, so that it is one word and not an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


@plugin_group.command("check", short_help="Check components against their contract.")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), help="Check only components of this kind.")
@assignments_option("Setting of the component; may be repeated.")
@click.option("--strict", is_flag=True, help="Also fail if a law declared exempt holds.")
@click.option("--verbose", is_flag=True, help="Show all laws, not only those that need attention.")
@click.pass_context
def check_command(
    ctx: click.Context,
    name: str,
    kind: str | None,
    assignments: tuple[str, ...],
    strict: bool,
    verbose: bool,
) -> None:
    """Check components against the laws of their contract.

    NAME is a component, an entry point or a distribution; all components of the latter two
    are checked.  The exit code is 1 if a law is violated.
    """
    from treekit.testing.report import format_report

    found = _find_components(name, kind)
    if assignments and len(found) > 1:
        raise SettingError(
            f"--set needs a single component, but {name!r} provides {len(found)}; name one of "
            + ", ".join(component.name for component in found)
        )
    broken = 0
    for component in found:
        report = _check_component(component, assignments, strict)
        click.echo(format_report(report, verbose, _style_text))
        click.echo()
        broken += not report.ok
    if broken:
        ctx.exit(1)


def _find_components(name: str, kind: str | None) -> list[Component]:
    """Return the components with this name, else those of this plugin or distribution."""
    from treekit import registry

    every = [c for c in registry.components() if kind in (None, c.kind)]
    for attribute in ("name", "plugin", "distribution"):
        found = [c for c in every if getattr(c, attribute) == name]
        if found:
            return found
    known = {getattr(c, a) for c in every for a in ("name", "plugin", "distribution")}
    faults = [fault for fault in registry.faults() if name in fault]
    left_out = f"; left out: {'; '.join(faults)}" if faults else ""
    raise SettingError(
        f"no component, plugin or distribution is named {name!r}"
        f"{suggestion(name, known)}{left_out}; treekit plugins lists them"
    )


def _check_component(component: Component, assignments: tuple[str, ...], strict: bool) -> Report:
    import treekit.testing as kit
    from treekit.registry.kinds import list_settings

    where = f"{component.kind} {component.name!r}"
    settings = parse_assignments(list_settings(component.record), assignments, where)
    return kit.check(component.kind, component.record, settings, strict=strict, fail=False)


_STYLES: dict[str, dict[str, Any]] = {
    "title": {"bold": True},
    "holds": {"fg": "green"},
    "broken": {"fg": "red"},
    "declared": {"fg": "yellow"},
    "fact": {"dim": True},
    "text": {},
}


def _style_text(text: str, role: str) -> str:
    return click.style(escape_text(text), **_STYLES[role])


# ---------------------------------------------------------------- treekit plugins


@click.command("plugins", short_help="List installed components and their plugins.")
@json_option
def plugins_command(as_json: bool) -> None:
    """List all components with their distributions, and the faults of plugins."""
    from treekit import registry

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)  # faults are listed below
        found = registry.components()
    rows = [
        (c.kind, c.name, c.distribution, c.version, c.contract, c.record.summary) for c in found
    ]
    offers = Counter((component.kind, component.name) for component in found)
    faults = [
        f"{kind} {name!r} is provided {times} times and cannot be chosen; uninstall all but one"
        for (kind, name), times in offers.items()
        if times > 1
    ]
    faults += registry.faults()
    if as_json:
        print_json(PluginsReport([ComponentRecord(*row) for row in rows], faults))
        return
    print_table(["kind", "name", "distribution", "version", "contract", "summary"], rows)
    if faults:
        click.echo()
        print_heading("faults")
        for fault in faults:
            click.echo(f"  {escape_text(fault)}")
