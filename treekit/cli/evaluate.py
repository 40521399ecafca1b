"""``treekit evaluate``: the scores of a model on a table, or of settings by cross-validation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.cli.files import check_place, write_text
from treekit.cli.terminal import shown
from treekit.cli.train import read_dataset, settings_options, table_options

if TYPE_CHECKING:
    from treekit.evaluation import Evaluation

__all__ = ["evaluate_command"]

_OF_TRAINING = (
    *("algorithm", "ensemble", "trees", "criterion", "splitter", "pruner", "seed", "assignments"),
    *("nominal", "numeric", "ignore", "task", "classes"),
)


@click.command("evaluate", short_help="Score a model on a table, or settings by cross-validation.")
@click.argument("model", metavar="[MODEL]")
@click.argument("table", required=False, metavar="TABLE")
@click.option("--target", metavar="COL", help="Column to predict, of a cross-validation.")
@click.option(
    "--cv",
    metavar="K",
    type=click.IntRange(2),
    help="Folds of the cross-validation; those of classes are stratified.  [default: 10]",
)
@click.option(
    "--repeats", metavar="N", type=click.IntRange(1), help="Cross-validations.  [default: 1]"
)
@click.option("--groups", metavar="COL", help="Column whose equal values stay in one fold.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also write a page with confusion matrix, ROC and calibration curves.",
)
@settings_options
@table_options
def evaluate_command(**given: Any) -> None:
    """Score MODEL on a TABLE with its target, or with --target cross-validate on TABLE.

    Each score stands beside its 95% interval and the score of a baseline that
    predicts the shares of the classes, or the mean, for every row.
    """
    inputs = [given["model"], *filter(None, [given["table"]])]
    if given["html"] is not None:
        check_place(given["html"], *inputs)
    found = _score_model(given) if given["target"] is None else _cross_validate(given)
    if given["html"] is not None:
        write_text([found.to_html()], given["html"])
    if given["as_json"]:
        click.echo(found.to_json(), nl=False)
        return
    for line in str(found).split("\n"):
        click.secho(shown(line), fg="yellow" if line and line == found.warning else None)
    if given["html"] is not None:
        click.echo(f"\nwritten to {str(given['html'])!r}")


def _score_model(given: dict[str, Any]) -> Evaluation:
    from treekit.cli.scoring import read_rows
    from treekit.evaluation import evaluate_model
    from treekit.model.store import load

    if given["table"] is None:
        raise click.UsageError(
            "give a model and a table, or a table and --target for a cross-validation"
        )
    for name in ("cv", "repeats", "groups", *_OF_TRAINING):
        if given[name] not in (None, ()):
            option = "--set" if name == "assignments" else f"--{name}"
            raise click.UsageError(f"{option} is for a cross-validation; give --target, no model")
    loaded = load(given["model"])
    marks = given["missing_marks"]
    rows = read_rows(given["table"], loaded.schema.missing_marks if marks is None else marks)
    return evaluate_model(loaded, rows, weights=given["weights"])


def _cross_validate(given: dict[str, Any]) -> Evaluation:
    from treekit.cli.assignments import training_settings
    from treekit.cli.scoring import read_rows
    from treekit.cli.waiting import fold_progress
    from treekit.evaluation import cross_validate, group_codes
    from treekit.kernels.notice import compile_notice

    if given["table"] is not None:
        raise click.UsageError("--target is for a cross-validation; give one table and no model")
    names = ("algorithm", "ensemble", "trees", "criterion", "splitter", "pruner", "seed")
    settings = training_settings({name: given[name] for name in names}, given["assignments"] or ())
    table = read_rows(given["model"], given["missing_marks"])
    groups = given["groups"]
    codes = group_codes(table, groups)
    ignore = [*given["ignore"], *([] if groups is None else [groups])]
    asked = given | {"targets": given["target"], "ignore": ignore}
    dataset = read_dataset(asked, settings, table)
    with compile_notice(), fold_progress() as progress:
        return cross_validate(
            dataset,
            settings,
            cv=given["cv"] or 10,
            repeats=given["repeats"] or 1,
            groups=codes,
            progress=progress,
        )
