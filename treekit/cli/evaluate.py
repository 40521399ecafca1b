"""``treekit evaluate``: score a model on a table, or cross-validate settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from treekit.cli.options import (
    cluster_option,
    file_option,
    get_reading_options,
    json_option,
    number_option,
    read_rows,
    read_training_rows,
    settings_options,
    table_options,
)
from treekit.cli.settings_arguments import SETTING_OPTIONS, parse_training_settings
from treekit.cli.streams import INPUT, name_output
from treekit.cli.terminal import check_output_path, escape_text, write_text
from treekit.cli.train import make_training_set
from treekit.errors import ModelFileError
from treekit.progress import show_progress

if TYPE_CHECKING:
    from treekit.evaluation import Evaluation
    from treekit.evaluation.settings import SettingsComparison


_CROSS_VALIDATION_OPTIONS = (
    *("cv", "repeats", "groups", "like", "compared"),
    *(*SETTING_OPTIONS, "assignments"),
    *("nominal", "numeric", "ignore", "task", "classes", "decimal", "thousands", "schema"),
)


@click.command("evaluate", short_help="Score a model on a table, or cross-validate settings.")
@click.argument("inputs", nargs=-1, required=True, metavar="[MODEL] TABLE", type=INPUT)
@click.option(
    *("--target", "targets"),
    multiple=True,
    metavar="COL",
    help="Column to predict; selects cross-validation.",
)
@number_option(
    "--cv", "Number of folds, stratified for classification.  [default: 10]", least=2, metavar="K"
)
@number_option(
    "--repeats", "Number of cross-validations, each with new folds.  [default: 1]", least=1
)
@click.option("--groups", metavar="COL", help="Keep rows with equal values of COL in one fold.")
@click.option(
    *("--compare", "compared"),
    metavar="KEY=A,B,...",
    help="Cross-validate each value of the setting KEY on the same folds, and compare the scores.",
)
@click.option("--by", metavar="COL", help="Score each category of COL on its own, too.")
@click.option("--like", metavar="MODEL", type=INPUT, help="Start from the settings of this model.")
@json_option
@file_option(
    "--html", "Also write an HTML report with confusion matrix, ROC and calibration curves."
)
@settings_options
@table_options
@cluster_option
def evaluate_command(**given: Any) -> None:
    """Score MODEL on a TABLE that contains its target; with --target, cross-validate on TABLE.

    Each score has a 95% confidence interval and is compared with a baseline that always
    predicts the class frequencies or the mean.

    With --cluster, the TABLE of a MODEL is a Parquet file, a folder, a pattern such as
    'rows/*.parquet', or a URL.
    """
    inputs = given["inputs"]
    wanted = 1 if given["targets"] else 2
    if len(inputs) != wanted or len(given["targets"]) > 1:
        raise click.UsageError("give a model and a table, or one table and one --target")
    if given["html"] is not None:
        check_output_path(given["html"], *inputs)
    found = _cross_validate(given) if given["targets"] else _score_model(given)
    if given["html"] is not None:
        write_text([found.to_html()], given["html"])
    if given["as_json"]:
        click.echo(found.to_json(), nl=False)
        return
    warning = getattr(found, "warning", "")
    for line in str(found).split("\n"):
        click.secho(escape_text(line), fg="yellow" if line and line == warning else None)
    if given["html"] is not None:
        click.echo(f"\nwritten to {name_output(given['html'])}")


def _score_model(given: dict[str, Any]) -> Evaluation:
    from treekit.evaluation import evaluate_files, evaluate_model
    from treekit.model.model_file import load

    for name in _CROSS_VALIDATION_OPTIONS:
        if given[name] not in (None, ()):
            option = {"assignments": "--set", "compared": "--compare"}.get(name)
            option = option or f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} is for cross-validation: use it with --target")
    if given["dtype"] != "auto":
        raise click.UsageError("--dtype is for cross-validation: use it with --target")
    path, table = given["inputs"]
    try:
        model = load(path)
    except ModelFileError as error:
        raise click.UsageError(
            f"{error}; give a model and a table, or one table and one --target"
        ) from error
    if given["cluster"] is not None:
        if given["by"] is not None:
            raise click.UsageError("--by needs the table in this process; leave --cluster out")
        from treekit.distributed.parquet_files import find_files

        files = find_files(table)
        with show_progress("files") as progress:
            return evaluate_files(
                model, files, given["cluster"], weights=given["weights"], progress=progress
            )
    rows = read_rows(table, given["missing_marks"], model)
    return evaluate_model(model, rows, weights=given["weights"], by=given["by"])


def _cross_validate(given: dict[str, Any]) -> Evaluation | SettingsComparison:
    from treekit.data.groups import read_groups
    from treekit.evaluation import cross_validate, encode_groups
    from treekit.evaluation.settings import compare_settings

    if given["cluster"] is not None:
        raise click.UsageError(
            "--cluster scores a model; a cross-validation runs in this process: train on the "
            "cluster and score the model, or leave --cluster out"
        )
    if given["compared"] is not None and given["by"] is not None:
        raise click.UsageError("--compare and --by exclude each other; leave one out")
    setting, choices = _list_choices(given)
    settings = next(iter(choices.values()))
    (target,), groups = given["targets"], given["groups"]
    if groups == target:
        raise click.UsageError(f"--groups {groups!r} is the target; give another column")
    ignore = [*given["ignore"], *([] if groups is None else [groups])]
    reading = get_reading_options(given | {"ignore": ignore})
    table = read_training_rows(given["inputs"][0], reading)
    folds: dict[str, Any] = {
        "cv": given["cv"] or 10,
        "repeats": given["repeats"] or 1,
        "groups": encode_groups(table, groups),
    }
    dataset = make_training_set(table, [target], reading, settings)
    by = None if given["by"] is None else (given["by"], *read_groups(table, given["by"]))
    with show_progress("folds") as progress:
        if setting:
            return compare_settings(dataset, setting, choices, **folds, progress=progress)
        return cross_validate(dataset, settings, **folds, by=by, progress=progress)


def _list_choices(given: dict[str, Any]) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the setting of ``--compare``, and all settings for each of its values."""
    from treekit.training.retrain import get_settings_like

    def parse(options: dict[str, Any]) -> dict[str, Any]:
        settings = parse_training_settings(options)
        return get_settings_like(given["like"], settings) if given["like"] else settings

    if given["compared"] is None:
        return "", {"": parse(given)}
    key, sign, text = given["compared"].partition("=")
    name = key.strip().replace("-", "_")
    values = list(dict.fromkeys(value.strip() for value in text.split(",") if value.strip()))
    if not sign or len(values) < 2:
        raise click.UsageError(
            f"--compare {given['compared']!r} is not KEY=A,B,...; write criterion=gini,entropy"
        )
    choices = {}
    for value in values:
        own = {name: value} if name in SETTING_OPTIONS else {}
        more = () if own else (f"{name}={value}",)
        choices[value] = parse(given | own | {"assignments": (*given["assignments"], *more)})
    return name, choices
