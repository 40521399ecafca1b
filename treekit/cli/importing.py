"""``treekit import``: another library's model file as one of treekit's."""

from __future__ import annotations

from pathlib import Path

import click

from treekit.cli.files import check_place

__all__ = ["import_command"]


@click.command("import", short_help="Read another library's model file.")
@click.argument("source", metavar="FILE")
@click.option(
    *("-o", "--output"),
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The model file to write.",
)
@click.option(
    *("--set", "assignments"),
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the importer: answer=margins, dtype=float64, iterations=N.",
)
def import_command(source: str, output: Path, assignments: tuple[str, ...]) -> None:
    """Read FILE, another library's model, and write it as a model file of treekit's.

    LightGBM's text, XGBoost's JSON and UBJSON, ONNX graphs of one tree operator and
    scikit-learn's trees in a file of skops are read; never a pickle.  All other commands
    take the model file: export, rules, verify, predict, inspect.
    """
    from treekit.cli.terminal import shown
    from treekit.interop import importer_of, read_model
    from treekit.settings import parse_assignments

    path = Path(source)
    check_place(output, source)
    if not path.is_file():
        raise click.UsageError(f"there is no file {source!r}; check the path")
    importer = importer_of(path)
    where = f"importer {importer.name!r}"
    model = read_model(path, **parse_assignments(importer.settings, assignments, where))
    model.save(output)
    click.echo(f"{shown(str(output))}: {shown(repr(model))}, read by {importer.name}")
