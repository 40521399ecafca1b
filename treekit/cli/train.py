"""``treekit train``: train a model on a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from treekit.cli.json_reports import TestScore, TrainReport, make_size, print_json
from treekit.cli.options import (
    cluster_option,
    get_reading_options,
    json_option,
    output_option,
    read_training_rows,
    settings_options,
    table_option,
    table_options,
)
from treekit.cli.streams import INPUT, MODEL_OUTPUT, is_standard_output, name_output
from treekit.cli.terminal import check_output_path, escape_text, print_heading, print_table
from treekit.errors import SettingError
from treekit.progress import show_progress

if TYPE_CHECKING:
    from pathlib import Path

    from treekit.data.dataset import Dataset
    from treekit.data.table import Table
    from treekit.model.model import Model


_COMPONENTS_NOTE = (
    "\nAdd --criterion NAME, --splitter NAME or --pruner NAME to list the settings of a component "
    "as well."
)


class _TrainCommand(click.Command):
    """A command that suggests ``--set`` for options that are names of settings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; with ``--help-settings`` no parameter is required."""
        asked = "--help-settings" in args
        ctx.resilient_parsing |= asked
        given = list(args)  # the parser consumes its argument
        try:
            rest = super().parse_args(ctx, args)
            if asked and ctx.params["help_settings"] is None:
                word = given[given.index("--help-settings") + 1]
                raise click.UsageError(f"--help-settings: {word!r} is not one of 'common', 'all'")
            return rest
        except click.NoSuchOption as error:
            remedy = _suggest_setting(error.option_name, given)
            if remedy is None:
                raise
            message = f"No such option: {error.option_name}; write {remedy}"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None


def _suggest_setting(option: str, args: list[str]) -> str | None:
    """Return the ``--set`` to use instead of an option that is the name of a setting."""
    from treekit.training.settings import SETTINGS

    name = option.lstrip("-").replace("-", "_")
    if name not in {setting.name for setting in SETTINGS}:
        return None
    value = "VALUE"
    for i, word in enumerate(args):
        head, sign, tail = word.partition("=")
        if head == option:
            value = tail if sign else next(iter(args[i + 1 : i + 2]), value)
            break
    return f"--set {name}={value}"


@click.command("train", cls=_TrainCommand, short_help="Train a model on a table.")
@click.argument("table", type=INPUT)
@click.option(
    *("--target", "targets"),
    required=True,
    multiple=True,
    metavar="COL",
    help="Column to predict; repeat it for a model with several targets.",
)
@output_option("Model file to write.", "MODEL", kind=MODEL_OUTPUT)
@settings_options
@click.option(
    "--help-settings",
    type=click.Choice(["common", "all"]),
    is_flag=False,
    flag_value="common",
    help="List the common settings, or all of them, and exit.",
)
@table_options
@click.option("--like", metavar="MODEL", type=INPUT, help="Start from the settings of this model.")
@table_option("--validation", "Rows for pruning, instead of a share of TABLE's rows.")
@table_option("--test", "Score the model on this table.", name="test_table")
@json_option
@cluster_option
@click.option(
    "--cluster-mode",
    type=click.Choice(["auto", "trees", "levels"]),
    default="auto",
    show_default=True,
    help="What each worker holds: the table (trees), or a part of it (levels); auto: by memory.",
)
def train_command(**given: Any) -> None:
    """Train a model on TABLE (.csv, .csv.gz, .tsv, .parquet, .arrow) and write it to a file.

    Text columns are categories, others are numeric; empty cells are missing.

    With --cluster, TABLE may also be a folder, a pattern such as 'rows/*.parquet', or a URL
    of Parquet files.  The model is the same for any number of workers, and without a cluster.
    """
    from treekit.cli.settings_arguments import (
        list_algorithm_rows,
        list_setting_rows,
        parse_training_settings,
    )

    settings = parse_training_settings(given)
    if given["help_settings"]:
        rows, hidden = list_setting_rows(settings, every=given["help_settings"] == "all")
        print_table(["setting", "accepts", "default", "meaning"], rows)
        if hidden:
            click.echo(f"\n{hidden} more settings, for special cases: --help-settings all")
        click.echo()
        print_table(["algorithm", "meaning", "its settings"], list_algorithm_rows())
        click.echo(_COMPONENTS_NOTE)
        return
    if given["like"]:
        from treekit.training.retrain import get_settings_like

        settings = get_settings_like(given["like"], settings)
    inputs = (given[name] for name in ("table", "validation", "test_table", "like"))
    check_output_path(given["output"], *inputs)
    _train_and_report(given, settings)


def _train_and_report(given: dict[str, Any], settings: dict[str, Any]) -> None:
    from treekit.cli.model_summary import describe_estimate, print_training
    from treekit.data.table import names_many_files
    from treekit.training.tasks import predicts_numbers

    if given["test_table"] and predicts_numbers(settings):
        raise SettingError(
            f"--test has no scores for criterion {settings['criterion']!r}, which does not "
            "predict the target; omit --test, and use the scores of the criterion's plugin"
        )
    if given["test_table"] and names_many_files(given["test_table"]):
        raise SettingError(
            f"--test reads one file, got {given['test_table']!r}; score the model by "
            "treekit evaluate MODEL TABLE --cluster"
        )
    reading = get_reading_options(given)
    test = given["test_table"] and read_training_rows(given["test_table"], reading)
    for target in given["targets"] if test is not None else ():
        test.find_column(target, "target column")  # fail now, not after hours of training
    if given["cluster"] is None and given["cluster_mode"] != "auto":
        raise click.UsageError("--cluster-mode needs --cluster")
    if given["cluster"] is not None:
        model = _train_on_cluster(given, settings)
    else:
        table = read_training_rows(given["table"], reading)
        dataset = make_training_set(table, given["targets"], reading, settings)
        validation = given["validation"] and _read_validation(given, settings, reading, dataset)
        model = fit_with_progress(dataset, settings, validation)
    model.save(given["output"])
    scores = [] if test is None else _score_test_rows(model, test)
    if given["as_json"]:
        print_json(_make_report(model, given["output"], scores))
        return
    if test is None:
        print_heading("score on new rows")
        click.echo(f"  {describe_estimate(model)}")
    else:
        print_heading(f"score on {test.n_rows:,} rows of {given['test_table']!r}")
        for score in scores:
            click.echo(f"  {escape_text(score.measure)} {score.value:.4f}")
        if scores[0].is_training_table:
            click.secho("  the training rows: the score on new rows will be lower", fg="yellow")
    print_training(model)
    click.echo(f"\nwritten to {name_output(given['output'])}")


def _score_test_rows(model: Model, test: Table) -> list[TestScore]:
    from treekit.cli.predict import compute_scores
    from treekit.training import has_training_rows

    scores, seen = compute_scores(model, test), has_training_rows(model, test)
    return [TestScore(name, value, test.n_rows, seen) for name, value in scores]


def _make_report(model: Model, output: Path, scores: list[TestScore]) -> TrainReport:
    from treekit.cli.model_summary import find_estimate
    from treekit.model.model import hash_model

    return TrainReport(
        model=None if is_standard_output(output) else str(output),
        model_sha256=hash_model(model),
        rows=model.provenance["training_table"]["rows"],
        targets=[output.name for output in model.schema.outputs],
        size=make_size(model),
        settings=model.settings,
        estimate=find_estimate(model),
        test=scores,
    )


def make_training_set(
    table: Table, targets: list[str], reading: dict[str, Any], settings: dict[str, Any]
) -> Dataset:
    """Make the training dataset of a table by reading options."""
    from treekit.data.dataset import make_dataset
    from treekit.training import tasks

    return make_dataset(
        table, targets, **reading | tasks.get_reading_options(settings, reading["task"])
    )


def _train_on_cluster(given: dict[str, Any], settings: dict[str, Any]) -> Model:
    """Train on the workers of a cluster; this process reads tables of one file."""
    from treekit.data.table import names_many_files
    from treekit.distributed.parquet_files import find_files
    from treekit.distributed.whole_trees import train_on_cluster
    from treekit.training import tasks

    reading = get_reading_options(given)

    def find_or_read(path: str | None) -> Any:
        if path is None:
            return None
        return find_files(path) if names_many_files(path) else read_training_rows(path, reading)

    table, validation = find_or_read(given["table"]), find_or_read(given["validation"])
    options = reading | tasks.get_reading_options(settings, reading["task"])
    targets, cluster, mode = (given[name] for name in ("targets", "cluster", "cluster_mode"))
    with show_progress("trees") as progress:
        return train_on_cluster(
            table, targets, options, validation, settings, cluster, progress, mode
        ).model


def _read_validation(
    given: dict[str, Any], settings: dict[str, Any], reading: dict[str, Any], dataset: Dataset
) -> Dataset:
    """Read the validation table, encoded by the schema of the training table."""
    from treekit.training import read_validation

    rows = read_training_rows(given["validation"], reading)
    return read_validation(rows, dataset, given["weights"], settings)


def fit_with_progress(
    dataset: Dataset, settings: dict[str, Any], validation: Dataset | None = None
) -> Model:
    """Train a model, with a progress bar on stderr."""
    from treekit.training import fit

    with show_progress("trees") as progress:
        return fit(dataset, settings, progress, validation).model
