"""``python -m treekit``: the command line."""

from treekit.cli import main

if __name__ == "__main__":
    main(prog_name="treekit")
