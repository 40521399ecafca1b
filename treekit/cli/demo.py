"""``treekit demo``: from a table to verified artifacts in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.terminal import heading, shown

if TYPE_CHECKING:
    from treekit.data.dataset import Dataset
    from treekit.data.table import Table
    from treekit.model.model import Model
    from treekit.verify import Report

__all__ = ["demo_command"]

_TREE: dict[str, Any] = {"pruner": "cost_complexity", "seed": 0}
_FOREST: dict[str, Any] = {"ensemble": "forest", "trees": 100, "seed": 0, "n_jobs": -1}
_TARGETS = ("onnx", "c", "python", "rules")
_SHARE_HELD = 0.25


@click.command("demo", short_help="Run a demo on a table that ships with treekit.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("treekit-demo"),
    show_default=True,
    help="Folder to write models and artifacts to.",
)
@click.pass_context
def demo_command(ctx: click.Context, out: Path) -> None:
    """Train a tree and a forest on 368 horses with colic, export both, and verify the exports."""
    from treekit.cli.model_summary import counted, estimate_of
    from treekit.data import DEMO_TARGET, demo_table
    from treekit.data.dataset import make_dataset
    from treekit.data.table import read_table

    table = read_table(demo_table())
    dataset = make_dataset(table, DEMO_TARGET)
    heading("Data: horses with colic; target: is the lesion surgical?")
    click.echo(f"  {_described(dataset)}\n")

    heading("A tree, pruned by cross-validation")
    tree = _trained(dataset, _TREE)
    accuracy, held = _held_out(table, DEMO_TARGET)
    alpha = tree.provenance["pruner"]["alpha"]
    click.echo(f"  {counted(tree.n_leaves, 'leaf')}, depth {tree.depth}, alpha {alpha:.4g}")
    click.echo(f"  accuracy {accuracy:.3f} on {held} rows held out, trained on the others\n")

    heading("A forest of 100 trees")
    forest = _trained(dataset, _FOREST)
    click.echo(f"  {counted(forest.n_leaves, 'leaf')}, depth {forest.depth}")
    click.echo(f"  {estimate_of(forest)}\n")

    heading(f"Written to {shown(out)}")
    out.mkdir(parents=True, exist_ok=True)
    artifacts = {name: _written(model, out, name) for name, model in _named(tree, forest)}
    click.echo()

    heading("Rules of the tree")
    click.echo("\n".join(f"  {line}".rstrip() for line in _rule_lines(tree)) + "\n")

    reports = [_verified(model, name, artifacts[name]) for name, model in _named(tree, forest)]
    ctx.exit(max(report.exit_code for report in reports))


def _named(tree: Model, forest: Model) -> list[tuple[str, Model]]:
    return [("tree", tree), ("forest", forest)]


def _described(dataset: Dataset) -> str:
    nominal = int(dataset.schema.nominal.sum())
    gone = sum(
        int((c < 0).sum() if c.dtype.kind == "i" else (c != c).sum()) for c in dataset.columns
    )
    numeric = dataset.schema.n_features - nominal
    return (
        f"{dataset.n_rows} rows, {numeric} numeric and {nominal} nominal columns, "
        f"{gone:,} missing cells"
    )


def _trained(dataset: Dataset, settings: dict[str, Any]) -> Model:
    from treekit.cli.train import fitted

    return fitted(dataset, settings)


def _held_out(table: Table, target: str) -> tuple[float, int]:
    """Train on three quarters of the rows; return accuracy and size of the last quarter."""
    import numpy as np

    from treekit.cli.predict import quality
    from treekit.data.dataset import make_dataset

    rows = np.random.default_rng(0).permutation(table.n_rows)
    held, rest = np.split(rows, [round(_SHARE_HELD * table.n_rows)])
    model = _trained(make_dataset(table.take(rest), target), _TREE)
    return quality(model, table.take(held))[0][1], len(held)


def _written(model: Model, folder: Path, name: str) -> list[Path]:
    """Write the model file and all artifacts; return the main file of each artifact."""
    from treekit.export import export

    model.save(folder / f"{name}.treekit")
    written = [export(model, target, folder / _file_name(name, target)) for target in _TARGETS]
    files = [f"{name}.treekit", *(path.name for paths in written for path in paths)]
    click.echo(f"  {' '.join(files)}")
    return [paths[0] for paths in written]


def _file_name(name: str, target: str) -> str:
    from treekit import registry

    return name + registry.exporter(target).suffix


def _rule_lines(model: Model) -> list[str]:
    """Return the lines of the rules, without the header."""
    _, first, others = str(model.rules()).partition("rule 1 of ")
    return (first + others).splitlines()


def _verified(model: Model, name: str, artifacts: list[Path]) -> Report:
    """Verify the artifacts that this machine can run, and name the others."""
    from treekit.cli.terminal import print_report
    from treekit.kernels.compile import compile_notice
    from treekit.verify import verify
    from treekit.verify.run_artifact import runner_of

    untried = {path: why for path in artifacts if (why := runner_of(path).lacking(path))}
    heading(f"Verification of the {name}'s artifacts")
    with compile_notice():
        report = verify(model, [path for path in artifacts if path not in untried])
    print_report(report)
    for path, why in untried.items():
        click.secho(f"{shown(path)} was written but not verified: {why}", fg="yellow")
    click.echo()
    return report
