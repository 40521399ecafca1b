"""``treekit warm-up``: compile the kernels before the first use."""

from __future__ import annotations

import click

from treekit.progress import show_progress


@click.command("warm-up", short_help="Compile the kernels ahead of time, for containers.")
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
def warm_up_command(kinds: tuple[str, ...]) -> None:
    """Compile the kernels of the usual KINDs of use, in two processes, and store them on disk.

    Without it the first use of each kind compiles for some seconds.  Kinds: use (predictions,
    rules, exports, verification), demo (use, and what treekit demo trains), trees (trees and
    forests of any classes), classification, regression (the named algorithms, criteria and
    splitters), rare (oblique splits, surrogates, pruners), many-classes (4 to 10), serving, levels
    (training by levels on a cluster); all by default.  What is stored
    already, or came with the wheel, is not compiled again.

    The machine code is stored in your folder for caches, such as ~/.cache/treekit, or in the folder
    NUMBA_CACHE_DIR, which may be read-only later; all environments with this release share it.  In
    a Containerfile: ENV NUMBA_CACHE_DIR=/opt/numba, then RUN treekit warm-up demo serving.  For an
    image that runs on other processors than this one, set NUMBA_CPU_NAME=generic, too.
    """
    from treekit.errors import TreekitError
    from treekit.kernels.prebuilt import explain_refusal
    from treekit.warm_up import KINDS, SECONDS, compile_in_processes, split_kinds

    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise TreekitError(f"unknown kind {unknown[0]!r}; known: {', '.join(KINDS)}")
    parts = split_kinds(kinds or tuple(KINDS))
    seconds = max(sum(SECONDS[kind] for kind in part) for part in parts)
    click.echo(f"compiling takes about {seconds} s, less for what is stored already", err=True)
    with show_progress("kinds of use") as progress:
        compile_in_processes(parts, progress=progress)
    refusal = explain_refusal()
    code = f"not used: {refusal}" if refusal else "used"
    click.echo(f"the kernels are compiled; machine code of the wheel: {code}")
