"""The command line interface.

Heavy modules are imported only when a command runs, so that ``treekit --help`` is fast.

Exit codes: 0, success; 1, ``verify`` found a difference or ``plugin check`` a violation;
2, an invalid command, table or file, with one message on stderr; 128 plus a signal number,
ended by Ctrl-C, SIGTERM or SIGHUP.
"""

from __future__ import annotations

import os

import click

from treekit._version import __version__
from treekit.cli.columns import columns_command
from treekit.cli.completion import completion_command
from treekit.cli.demo import demo_command
from treekit.cli.diff import diff_command
from treekit.cli.evaluate import evaluate_command
from treekit.cli.explain import explain_command, importances_command, plot_command
from treekit.cli.export import export_command, import_command, verify_command
from treekit.cli.plugins import plugin_group, plugins_command
from treekit.cli.predict import inspect_command, predict_command
from treekit.cli.rules import revise_command, rules_command, simplify_command
from treekit.cli.serve import serve_command
from treekit.cli.terminal import Commands
from treekit.cli.train import train_command
from treekit.cli.warm_up import warm_up_command
from treekit.progress import report_compilation

__all__ = ["main"]


SECTIONS: dict[str, list[click.Command]] = {
    "Train": [columns_command, train_command, evaluate_command],
    "Look into a model": [
        inspect_command, rules_command, explain_command, importances_command, plot_command,
        diff_command,
    ],
    "Use a model": [predict_command, export_command, verify_command, serve_command],
    "Change a model": [simplify_command, revise_command, import_command],
    "Plugins": [plugins_command, plugin_group],
    "Installation": [demo_command, completion_command, warm_up_command],
}  # fmt: skip
"""All commands, in the order of use."""


@click.group(
    cls=Commands,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="treekit")
@click.option(
    "--strict-plugins", is_flag=True, help="Treat a faulty plugin as an error, not a warning."
)
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
@click.pass_context
def main(ctx: click.Context, strict_plugins: bool, debug: bool) -> None:
    """Train decision trees and forests, export them, and verify every export bit for bit."""
    del debug  # read by `Commands`
    report_compilation(True)
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        ctx.color = False
    if strict_plugins:
        from treekit import registry

        registry.configure(strict=True)
