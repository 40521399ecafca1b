"""Update the snapshots: ``python -m tests.snapshots [NAME...]``."""

from __future__ import annotations

import sys

from tests.snapshots import FOLDER, SNAPSHOTS


def main(names: list[str]) -> int:
    """Write the named snapshots, or all of them, and print which changed."""
    if unknown := [name for name in names if name not in SNAPSHOTS]:
        print(f"unknown snapshot {unknown[0]!r}; known: {', '.join(SNAPSHOTS)}", file=sys.stderr)
        return 2
    for name in names or SNAPSHOTS:
        path = FOLDER / name
        text = SNAPSHOTS[name]()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            print(f"{name}: unchanged")
            continue
        path.write_text(text, encoding="utf-8", newline="\n")
        print(f"{name}: changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
