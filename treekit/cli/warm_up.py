"""``treekit warm-up``: check that nothing is left to compile."""

from __future__ import annotations

import click


@click.command("warm-up", short_help="Check that the kernels are compiled.")
@click.pass_context
def warm_up_command(ctx: click.Context) -> None:
    """Print which kernels are compiled; exit with 1 if some compile on first use.

    Wheels have all kernels.  An installation from source has the usual ones, those of treekit demo
    and treekit serve; with TREEKIT_KERNELS=all it has all, and pip takes minutes longer.
    """
    from treekit.kernels.library import explain_absence, get_library

    absence, library = explain_absence(), get_library()
    if library is None:
        click.echo(f"kernels compile on first use: {absence}")
        ctx.exit(1)
    facts = library.manifest
    click.echo(f"{facts['variants']} kernels are compiled for {facts['processor']}")
    if facts["variants"] != "all":
        click.echo("others compile on first use; install with TREEKIT_KERNELS=all to avoid that")
        ctx.exit(1)
