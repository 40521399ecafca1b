"""``treekit plugin``: what authors of plugins need."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

__all__ = ["plugin_group"]


@click.group("plugin", short_help="Start a plugin of your own.")
def plugin_group() -> None:
    """Write plugins; `treekit plugins` lists those that are installed."""


@plugin_group.command("new", short_help="Write a package that works, for you to change.")
@click.argument("name")
@click.option(
    *("--kind", "kind"),
    required=True,
    metavar="KIND",
    help="criterion, splitter, pruner, exporter or importer.",
)
@click.option(
    *("--dir", "directory"),
    default=".",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="An existing folder to write the package's folder into; default: here.",
)
def new_command(name: str, kind: str, directory: Path) -> None:
    """Write treekit-NAME, an installable package with one working component and its tests."""
    from treekit.cli.terminal import shown
    from treekit.scaffold import new_plugin

    made = new_plugin(name, kind, directory)
    for file in made.files:
        click.echo(shown(made.folder / file))
    click.echo("\nIt works as it stands. Next:\n")
    click.echo(f"  cd {_quoted(made.folder)}")
    click.echo("  pip install -e '.[test]'")
    click.echo("  pytest")


def _quoted(path: Path) -> str:
    """A path as a shell takes it: as one word that is no option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
