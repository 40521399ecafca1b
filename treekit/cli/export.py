"""``treekit export``, ``verify`` and ``import``: artifacts and models of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from treekit.cli.options import (
    assignments_option,
    cluster_option,
    file_option,
    number_option,
    output_option,
)
from treekit.cli.streams import INPUT, MODEL_OUTPUT, is_standard_output, name_output
from treekit.cli.terminal import (
    check_output_path,
    escape_text,
    print_report,
    print_table,
)
from treekit.progress import show_progress

# ---------------------------------------------------------------- export and verify


class _ExportCommand(click.Command):
    """A command that accepts a target's settings as options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, with ``--target-runtime 1.20`` as ``--set target_runtime=1.20``."""
        ctx.resilient_parsing |= "--help-settings" in args
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
    """Print the settings of a target, or of all targets."""
    from treekit import registry
    from treekit.export.languages import find_exporter
    from treekit.settings import help_rows

    exporters: list[Any] = [part.record for part in registry.components("exporter")]
    if target is not None:
        exporters = [find_exporter(target, {})]
    rows = [(one.name, *row) for one in exporters for row in help_rows(one.settings)]
    print_table(["target", "setting", "accepts", "default", "meaning"], rows)


@click.command(
    "export", cls=_ExportCommand, short_help="Export a model to another language or runtime."
)
@click.argument("model", type=INPUT)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TARGET",
    help="Format to write: c, go, java, onnx, ... ('treekit plugins' lists all).",
)
@assignments_option("Setting of the target; same as --KEY VALUE.  May be repeated.")
@click.option("--help-settings", is_flag=True, help="List the settings of targets and exit.")
@output_option("Main file to write; its suffix may be omitted.", "PATH")
def export_command(
    model: str, target: str, assignments: tuple[str, ...], output: Path, help_settings: bool
) -> None:
    """Export MODEL to a target, and print the files written.

    If the export fails, no file is changed.
    """
    if help_settings:
        _print_settings(target)
        return
    from treekit.export import export
    from treekit.export.c.layouts import summarize_sizes
    from treekit.export.languages import find_exporter
    from treekit.model.model_file import load
    from treekit.settings import parse_assignments

    given = dict(assignment.partition("=")[::2] for assignment in assignments)
    exporter = find_exporter(target, given)
    for place in _list_output_paths(output, exporter.suffix):
        check_output_path(place, model)
    where = f"exporter {exporter.name!r}"
    settings = parse_assignments(exporter.settings, assignments, where)
    paths = export(load(model), exporter, output, **settings)
    if is_standard_output(output):
        if len(paths) > 1:
            names = " and ".join(f"*{path.suffix}" for path in paths)
            raise click.UsageError(f"{exporter.name} writes {names}; name the files with -o")
        paths[0].rename(output)
        return
    for path in paths:
        click.echo(escape_text(path))
    for header in paths:
        text = header.read_bytes().decode(errors="replace") if header.suffix == ".h" else ""
        if sizes := summarize_sizes(text):
            click.echo(sizes, err=True)  # stdout lists files only


def _list_output_paths(output: Path, suffix: str) -> list[Path]:
    """Return every path that an export to `output` may write, with and without the suffix."""
    if suffix.startswith("/"):
        folder = output.parent if output.name == suffix[1:] else output
        return [folder / suffix[1:]]
    stem = output.name.removesuffix(suffix)
    return [output.with_name(name) for name in (output.name, stem + suffix, f"{stem}.h")]


@click.command("verify", short_help="Verify that artifacts equal a model, bit for bit.")
@click.argument("model", type=INPUT)
@click.argument("artifacts", nargs=-1, required=True, metavar="ARTIFACT...")
@file_option("--certificate", "Write the result as JSON, with digests of the artifacts.")
@number_option(
    "--rows", "Number of random rows, besides those constructed for each split and leaf.", 2000
)
@number_option("--seed", "Seed of the random rows.", 0)
@number_option(
    "--max-rows",
    "Maximum number of rows to construct; large forests may need more.",
    500_000,
    least=1,
)
@click.option("--quick", is_flag=True, help="Construct and draw at most 2,000 rows each.")
@click.option(
    "--budget",
    metavar="SECONDS",
    type=click.FloatRange(0, min_open=True),
    default=1800.0,
    show_default=True,
    help="Approximate time limit of running artifacts; the report lists what was left out.",
)
@click.option(
    *("--runtime", "--with", "runtimes"),
    multiple=True,
    metavar="NAME",
    help="Runtime to use, such as clang, qemu-arm, qemu-aarch64, qemu-s390x, openvino, reference "
    "(of onnx), MODULE:FUNCTION for your own of ONNX, or 'all'.  "
    "[default: the first available for each kind of artifact]",
)
@click.option("--without", multiple=True, metavar="NAME", help="Runtime not to use.")
@click.option(
    "--templates", metavar="DIR", default="", help="Folder of templates for additional languages."
)
@click.option("--on", metavar="TABLE", type=INPUT, help="Compare all rows of TABLE as well.")
@click.option("--json", "as_json", is_flag=True, help="Print the certificate.")
@cluster_option
@click.pass_context
def verify_command(
    ctx: click.Context,
    /,
    model: str,
    artifacts: tuple[str, ...],
    certificate: Path | None,
    rows: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Run artifacts of MODEL (.onnx, .c, .py, .rules.txt, .mjs, .java, .rs, .go; .sql by a plugin).

    Files of other names are recognised by their first line.  Their predictions are compared with
    the model's, bit for bit, and ONNX, C, Python and rules with a new export, byte for byte.

    Artifacts are executed: verify only files that you trust.  The exit code is 0 if all
    are equal, and 1 if any differs or cannot be run; the first differing row is printed.

    MODEL itself, the .h of a .c artifact and certificates are skipped, so that a pattern
    such as out/m.* can be given.

    With --cluster the workers run the artifacts on the rows of --on: a Parquet file, a folder,
    a pattern such as 'rows/*.parquet', or a URL.
    """
    from treekit.model.model_file import load
    from treekit.verify import verify

    paths = [path for path in map(Path, artifacts) if not _is_skipped(path, model, artifacts)]
    if not paths:
        raise click.UsageError("no artifact among the given files; name at least one")
    if certificate is not None:
        headers = [path.with_suffix(".h") for path in paths if path.suffix == ".c"]
        check_output_path(certificate, model, *paths, *headers)
    if options["cluster"] is not None and options["on"] is None:
        raise click.UsageError("--cluster runs artifacts on the rows of a table; add --on")
    options |= {"random_rows": rows, "certificate": certificate}
    with show_progress("files") as progress:
        report = verify(load(model), paths, progress=progress, **options)
    if as_json:
        click.echo(report.to_json(), nl=False)
    else:
        print_report(report)
    ctx.exit(report.exit_code)


def _is_skipped(path: Path, model: str, artifacts: tuple[str, ...]) -> bool:
    """Check for a file that accompanies artifacts: a header, a certificate or the model."""
    if path.suffix == ".h":
        return path.with_suffix(".c") in map(Path, artifacts)
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        if b'"format": "treekit certificate"' in stream.read(80):
            return True
    return Path(model).is_file() and path.samefile(model)


# ---------------------------------------------------------------- import


@click.command("import", short_help="Convert a model file of another library.")
@click.argument("source", metavar="FILE", type=INPUT)
@output_option("Model file to write.", kind=MODEL_OUTPUT)
@assignments_option("Setting of the importer: answer=margins, dtype=float64.")
def import_command(source: str, output: Path, assignments: tuple[str, ...]) -> None:
    """Convert FILE, a model of another library, to a treekit model file.

    Supported are, with the plugin treekit-importers, ONNX graphs with one tree operator,
    scikit-learn trees saved by skops, LightGBM text files, XGBoost JSON and UBJSON, CatBoost
    JSON and CBM, and folders of YDF; pickles are never read.  The result can be used by all
    other commands, such as export, rules, verify and predict.
    """
    from treekit.interop import importer_of, read_model
    from treekit.settings import parse_assignments

    path = Path(source)
    check_output_path(output, source)
    if not path.exists():
        raise click.UsageError(f"there is no file {source!r}; check the path")
    importer = importer_of(path)
    where = f"importer {importer.name!r}"
    model = read_model(path, **parse_assignments(importer.settings, assignments, where))
    model.save(output)
    name = escape_text(name_output(output))
    click.echo(f"{name}: {escape_text(repr(model))}, read by {importer.name}")
