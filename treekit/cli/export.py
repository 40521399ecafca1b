"""``treekit export`` and ``treekit verify``: artifacts, and the proof that they are equal."""

from __future__ import annotations

from pathlib import Path

import click

from treekit.cli.terminal import check_place

__all__ = [
    "export_command",
    "import_command",
    "verify_command",
]


# ---------------------------------------------------------------- artifacts


class _ExportCommand(click.Command):
    """A target's settings are options of their own; ``--help-settings`` needs nothing else."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; ``--target-runtime 1.20`` is ``--set target_runtime=1.20``."""
        ctx.resilient_parsing = "--help-settings" in args
        known = {name for option in self.params for name in option.opts} | {"--help"}
        words, rest = [], iter(args)
        for word in rest:
            head, sign, value = word.partition("=")
            if not head.startswith("--") or len(head) == 2 or head in known:
                words.append(word)
                continue
            if not sign and (value := next(rest, "")) == "":
                raise click.BadOptionUsage(head, f"Option {head!r} requires a value.", ctx)
            words += ["--set", f"{head[2:].replace('-', '_')}={value}"]
        return super().parse_args(ctx, words)


def _print_settings(target: str | None) -> None:
    """The settings of a target, or of all."""
    from treekit import registry
    from treekit.cli.terminal import print_table
    from treekit.contracts import Exporter
    from treekit.export.languages import target_named
    from treekit.settings import help_rows

    exporters = [part.record for part in registry.components("exporter")]
    if target is not None:
        exporters = [target_named(target, {})]
    print_table(
        ["target", "setting", "accepts", "default", "meaning"],
        [
            (exporter.name, *row)
            for exporter in exporters
            if isinstance(exporter, Exporter)
            for row in help_rows(exporter.settings)
        ],
    )


@click.command(
    "export", cls=_ExportCommand, short_help="Write a model for another language or runtime."
)
@click.argument("model")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TARGET",
    help="c, go, java, onnx, ... (treekit plugins).",
)
@click.option(
    *("--set", "assignments"),
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the target; --KEY VALUE does as well.",
)
@click.option("--help-settings", is_flag=True, help="List the settings of targets and exit.")
@click.option(
    *("-o", "--output"),
    required=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Main file to write; its ending may be left out.",
)
def export_command(
    model: str, target: str, assignments: tuple[str, ...], output: Path, help_settings: bool
) -> None:
    """Write MODEL for a target: all of its files, or none."""
    if help_settings:
        _print_settings(target)
        return
    from treekit.cli.terminal import shown
    from treekit.export import export
    from treekit.export.c.tables import sizes_in
    from treekit.export.languages import target_named
    from treekit.model.model_file import load
    from treekit.settings import parse_assignments

    given = dict(assignment.partition("=")[::2] for assignment in assignments)
    exporter = target_named(target, given)
    for place in _places(output, exporter.suffix):
        check_place(place, model)
    where = f"exporter {exporter.name!r}"
    settings = parse_assignments(exporter.settings, assignments, where)
    paths = export(load(model), exporter, output, **settings)
    for path in paths:
        click.echo(shown(path))
    for header in paths:
        text = header.read_bytes().decode(errors="replace") if header.suffix == ".h" else ""
        if said := sizes_in(text):
            click.echo(said, err=True)  # not a file, so it stands beside their list


def _places(output: Path, suffix: str) -> list[Path]:
    """Where an export may write, whatever is left out of `output`."""
    if suffix.startswith("/"):
        folder = output.parent if output.name == suffix[1:] else output
        return [folder / suffix[1:]]
    stem = output.name.removesuffix(suffix)
    return [output.with_name(name) for name in (output.name, stem + suffix, f"{stem}.h")]


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
@click.option(
    "--max-rows",
    metavar="N",
    type=click.IntRange(1),
    default=500_000,
    show_default=True,
    help="Most rows to construct; large forests may need more.",
)
@click.option(
    "--budget",
    metavar="SECONDS",
    type=click.FloatRange(0, min_open=True),
    default=1800.0,
    show_default=True,
    help="Time that it may take, about; what is left out for it is said.",
)
@click.option(
    *("--with", "runtimes"),
    multiple=True,
    metavar="NAME",
    help="What to run artifacts with, or all; default: the first that can, of each kind.",
)
@click.option("--without", multiple=True, metavar="NAME", help="What not to run artifacts with.")
@click.option(
    "--templates",
    metavar="DIR",
    default="",
    help="A folder of languages besides those that are known.",
)
@click.pass_context
def verify_command(
    ctx: click.Context,
    model: str,
    artifacts: tuple[str, ...],
    certificate: Path | None,
    rows: int,
    seed: int,
    max_rows: int,
    budget: float,
    runtimes: tuple[str, ...],
    without: tuple[str, ...],
    templates: str,
) -> None:
    """Run artifacts of MODEL (.onnx, .c, .py, .sql, .rules.txt, .mjs, .java, .rs, .go).

    Every bit of their answers is compared with the model's.

    Artifacts are executed: verify only files that you trust.  The exit code
    is 0 if all are equal, and 1 if any differs or could not be run; the first
    row that shows a difference is printed.

    MODEL itself, a .h beside its .c and certificates may be among the
    artifacts, so that a pattern such as out/m.* will do; they are passed over.
    """
    from treekit.cli.terminal import print_report
    from treekit.kernels.compile import compile_notice
    from treekit.model.model_file import load
    from treekit.verify import verify

    paths = [path for path in map(Path, artifacts) if not _passed_over(path, model, artifacts)]
    if not paths:
        raise click.UsageError("there is no artifact among the files given; name at least one")
    if certificate is not None:
        headers = [path.with_suffix(".h") for path in paths if path.suffix == ".c"]
        check_place(certificate, model, *paths, *headers)
    with compile_notice():
        report = verify(
            load(model),
            paths,
            random_rows=rows,
            seed=seed,
            max_rows=max_rows,
            budget=budget,
            runtimes=runtimes,
            without=without,
            templates=templates,
            certificate=certificate,
        )
    print_report(report)
    ctx.exit(report.exit_code)


def _passed_over(path: Path, model: str, artifacts: tuple[str, ...]) -> bool:
    """Whether a file stands beside the artifacts but is none itself."""
    if path.suffix == ".h":
        return path.with_suffix(".c") in map(Path, artifacts)
    if not path.is_file():
        return False
    if path.suffix == ".json":
        with path.open("rb") as stream:
            return b'"format": "treekit certificate"' in stream.read(80)
    return Path(model).is_file() and path.samefile(model)


# ---------------------------------------------------------------- importing
# ``treekit import``: another library's model file as one of treekit's.


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
