"""``treekit demo``: from a table to verified artifacts in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.terminal import escape_text, print_heading, print_report
from treekit.cli.train import fit_with_progress

if TYPE_CHECKING:
    from treekit.data.dataset import Dataset
    from treekit.data.table import Table
    from treekit.model.model import Model
    from treekit.verify import Report


_TREE: dict[str, Any] = {"pruner": "cost_complexity", "seed": 0}
_FOREST: dict[str, Any] = {"ensemble": "forest", "trees": 100, "seed": 0, "n_jobs": -1}
_TARGETS = ("onnx", "c", "python", "rules")
_HOLDOUT_SHARE = 0.25


@click.command("demo", short_help="Run a demo on a table that ships with treekit.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("treekit-demo"),
    show_default=True,
    help="Folder to write models and artifacts to.",
)
@click.option("--full", is_flag=True, help="Also train, export and verify a forest of 100 trees.")
@click.pass_context
def demo_command(ctx: click.Context, out: Path, full: bool) -> None:
    """Train a tree on 368 horses with colic, export it, and verify the exports."""
    from treekit.cli.model_summary import describe_estimate, format_count
    from treekit.data import DEMO_TARGET, demo_table
    from treekit.data.dataset import make_dataset
    from treekit.data.table import read_table

    table = read_table(demo_table())
    dataset = make_dataset(table, DEMO_TARGET)
    print_heading("Data: horses with colic; target: is the lesion surgical?")
    click.echo(f"  {_describe_dataset(dataset)}\n")

    print_heading("A tree, pruned by cross-validation")
    tree = fit_with_progress(dataset, _TREE)
    accuracy, held = _score_held_out(table, DEMO_TARGET)
    alpha = tree.provenance["pruner"]["alpha"]
    click.echo(f"  {format_count(tree.n_leaves, 'leaf')}, depth {tree.depth}, alpha {alpha:.4g}")
    rest = dataset.n_rows - held
    click.echo(f"  accuracy {accuracy:.3f} on {held} rows, of a tree trained on the other {rest}\n")

    models = {"tree": tree}
    if full:
        print_heading("A forest of 100 trees")
        forest = models["forest"] = fit_with_progress(dataset, _FOREST)
        click.echo(f"  {format_count(forest.n_leaves, 'leaf')}, depth {forest.depth}")
        click.echo(f"  {describe_estimate(forest)}\n")

    print_heading(f"Written to {escape_text(out)}")
    out.mkdir(parents=True, exist_ok=True)
    artifacts = {name: _write_artifacts(model, out, name) for name, model in models.items()}
    click.echo()

    print_heading("Rules of the tree")
    click.echo("\n".join(f"  {line}".rstrip() for line in _format_rules(tree)) + "\n")

    reports = [_verify_artifacts(models[name], name, artifacts[name]) for name in models]
    if not full:
        click.echo("The same with a forest of 100 trees: treekit demo --full")
    ctx.exit(max(report.exit_code for report in reports))


def _describe_dataset(dataset: Dataset) -> str:
    nominal = int(dataset.schema.nominal.sum())
    gone = sum(
        int((c < 0).sum() if c.dtype.kind == "i" else (c != c).sum()) for c in dataset.columns
    )
    numeric = dataset.schema.n_features - nominal
    return (
        f"{dataset.n_rows} rows, {numeric} numeric and {nominal} nominal columns, "
        f"{gone:,} missing cells"
    )


def _score_held_out(table: Table, target: str) -> tuple[float, int]:
    """Train on three quarters of the rows; return accuracy and size of the last quarter."""
    import numpy as np

    from treekit.cli.predict import compute_scores
    from treekit.data.dataset import make_dataset

    rows = np.random.default_rng(0).permutation(table.n_rows)
    held, rest = np.split(rows, [round(_HOLDOUT_SHARE * table.n_rows)])
    model = fit_with_progress(make_dataset(table.take(rest), target), _TREE)
    return compute_scores(model, table.take(held))[0][1], len(held)


def _write_artifacts(model: Model, folder: Path, name: str) -> list[Path]:
    """Write the model file and all artifacts; return the main file of each artifact."""
    from treekit import registry
    from treekit.export import export

    model.save(folder / f"{name}.treekit")
    exporters = (registry.get("exporter", name) for name in _TARGETS)
    written = [export(model, one, folder / f"{name}{one.suffix}") for one in exporters]
    files = [f"{name}.treekit", *(path.name for paths in written for path in paths)]
    click.echo(f"  {' '.join(files)}")
    return [paths[0] for paths in written]


def _format_rules(model: Model) -> list[str]:
    """Return the lines of the rules, without the header."""
    _, first, others = str(model.rules()).partition("rule 1 of ")
    return (first + others).splitlines()


def _verify_artifacts(model: Model, name: str, artifacts: list[Path]) -> Report:
    """Verify the artifacts that this machine can run, and name the others."""
    from treekit.verify import verify
    from treekit.verify.run_artifact import find_runner

    untried = {path: why for path in artifacts if (why := find_runner(path).why_unavailable(path))}
    print_heading(f"Verification of the {name}'s artifacts")
    report = verify(model, [path for path in artifacts if path not in untried])
    print_report(report)
    for path, why in untried.items():
        click.secho(f"{escape_text(path)} was written but not verified: {why}", fg="yellow")
    click.echo()
    return report
