"""A verification's report on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from treekit.cli.terminal import shown

if TYPE_CHECKING:
    from treekit.verify import Report

__all__ = ["print_report"]


def print_report(report: Report) -> None:
    """Print the report, its verdict green or red."""
    verdict, *rest = str(report).split("\n")
    click.secho(shown(verdict), fg="green" if report.equal else "red", bold=True)
    for line in rest:
        click.echo(shown(line))
