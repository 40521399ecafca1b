"""``treekit plugins``: every component, where it comes from, and what was left out."""

from __future__ import annotations

import warnings
from collections import Counter

import click

from treekit.cli.terminal import heading, print_table, shown
from treekit.errors import TreekitWarning

__all__ = ["plugins_command"]


@click.command("plugins", short_help="List criteria, splitters, pruners, exporters, importers.")
def plugins_command() -> None:
    """List all components with the distribution that brings them, and the faults of plugins."""
    from treekit import registry

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)  # listed below, once
        found = registry.components()
    print_table(
        ["kind", "name", "distribution", "version", "contract", "summary"],
        [
            [c.kind, c.name, c.distribution, c.version, str(c.contract), c.record.summary]
            for c in found
        ],
    )
    offers = Counter((component.kind, component.name) for component in found)
    faults = [
        f"{kind} {name!r} is offered {times} times and cannot be chosen; uninstall all but one"
        for (kind, name), times in offers.items()
        if times > 1
    ]
    faults += registry.faults()
    if faults:
        click.echo()
        heading("faults")
        for fault in faults:
            click.echo(f"  {shown(fault)}")
