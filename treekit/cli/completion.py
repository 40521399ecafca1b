"""``treekit completion``: completion of commands, options and names by the shell."""

from __future__ import annotations

import click


@click.command("completion", short_help="Print a script for completion by the shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and names of components.

    \b
    bash:  treekit completion bash > ~/.local/share/bash-completion/completions/treekit
    zsh:   treekit completion zsh > "${fpath[1]}/_treekit"
    fish:  treekit completion fish > ~/.config/fish/completions/treekit.fish
    """  # noqa: D301  # \b keeps click from rewrapping the lines
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"this release of click has no completion for {shell}")
    click.echo(found(ctx.find_root().command, {}, "treekit", "_TREEKIT_COMPLETE").source())
