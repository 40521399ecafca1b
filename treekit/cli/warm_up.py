"""``treekit warm-up``: check that nothing is left to compile."""

from __future__ import annotations

import click


@click.command("warm-up", short_help="Check that the kernels are compiled.")
@click.pass_context
def warm_up_command(ctx: click.Context) -> None:
    """Print which kernels, the inner loops of treekit, are compiled; exit with 1 if not all are.

    A wheel for one platform has all of them.  An installation from source has those of treekit demo
    and treekit serve.  With the environment variable TREEKIT_KERNELS=all, pip compiles all of them,
    which takes minutes longer.
    """
    from treekit.kernels.library import explain_absence, get_library

    absence, library = explain_absence(), get_library()
    if library is None:
        click.echo(f"no compiled kernels are used, because {absence}; numba compiles them on use")
        ctx.exit(1)
    facts = library.manifest
    if facts["variants"] == "all":
        click.echo(f"all kernels are compiled, for {facts['processor']}")
        return
    click.echo(f"the kernels of treekit demo and serve are compiled, for {facts['processor']}")
    click.echo("numba compiles others on use; to compile all, reinstall with TREEKIT_KERNELS=all")
    ctx.exit(1)
