"""``treekit export`` and ``treekit verify``: artifacts, and the proof that they are equal."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["export_command", "verify_command"]


@click.command("export", short_help="Write a model for another language or runtime.")
@click.argument("model")
@click.option(
    "--to", "target", required=True, metavar="TARGET", help="c, onnx, python, rules or a plugin's."
)
@click.option(
    *("--set", "assignments"), multiple=True, metavar="KEY=VALUE", help="A setting of the target."
)
@click.option(
    *("-o", "--output"),
    required=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Main file to write; its ending may be left out.",
)
def export_command(model: str, target: str, assignments: tuple[str, ...], output: Path) -> None:
    """Write MODEL for a target: all of its files, or none."""
    from treekit import registry
    from treekit.cli.terminal import shown
    from treekit.export import export
    from treekit.model.store import load
    from treekit.settings import parse_assignments

    exporter = registry.exporter(target)
    where = f"exporter {exporter.name!r}"
    settings = parse_assignments(exporter.settings, assignments, where)
    for path in export(load(model), exporter, output, **settings):
        click.echo(shown(path))


@click.command("verify", short_help="Prove artifacts equal to a model, bit for bit.")
@click.argument("model")
@click.argument("artifacts", nargs=-1, required=True, metavar="ARTIFACT...")
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the outcome as JSON, with digests of the artifacts.",
)
@click.option(
    "--rows",
    metavar="N",
    type=click.IntRange(0),
    default=2000,
    show_default=True,
    help="Random rows besides those constructed for each split and leaf.",
)
@click.option(
    "--seed", metavar="N", type=click.IntRange(0), default=0, show_default=True, help="Of the rows."
)
@click.pass_context
def verify_command(
    ctx: click.Context,
    model: str,
    artifacts: tuple[str, ...],
    certificate: Path | None,
    rows: int,
    seed: int,
) -> None:
    """Run artifacts of MODEL (.onnx, .c, .py, .rules.txt) and compare every bit.

    Artifacts are executed: verify only files that you trust.  The exit code
    is 1 if any differs, and the first row that shows it is printed.
    """
    from treekit.cli.report import print_report
    from treekit.cli.waiting import compile_notice
    from treekit.model.store import load
    from treekit.verify import verify

    with compile_notice():
        report = verify(
            load(model), artifacts, random_rows=rows, seed=seed, certificate=certificate
        )
    print_report(report)
    ctx.exit(report.exit_code)
