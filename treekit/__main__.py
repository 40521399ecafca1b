"""The command line: ``treekit``, or ``python -m treekit``."""

import signal


def main() -> None:
    """Run the command line; Ctrl-C during its imports ends it without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from treekit.cli import main as run

    run(prog_name="treekit")


if __name__ == "__main__":
    main()
