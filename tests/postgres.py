"""A PostgreSQL server of the tests' own: in a temporary folder, on a socket, as a plain user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["server"]

_FLAGS = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username=tree")


def _programs() -> Path | None:
    """The folder of initdb and postgres; Debian keeps it off the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return places[-1].parent if places else None


@contextmanager
def server() -> Iterator[str]:
    """How to reach a server that lives as long as the context; skips where there is none."""
    programs = _programs()
    if programs is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("PostgreSQL is not installed")
    user = _plain_user()
    # Its socket's path must be short: 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir()
        if user:
            account = pwd.getpwnam(user)
            os.chown(folder, account.pw_uid, account.pw_gid)
            os.chown(data, account.pw_uid, account.pw_gid)

        def run(program: str, *arguments: str | Path) -> None:
            # The server keeps the streams that it is started with: none to wait for.
            command = [programs / program, "-D", data, *arguments]
            subprocess.run(command, user=user, cwd=name, stdout=subprocess.DEVNULL, check=True)

        run("initdb", *_FLAGS)
        started = f"-k {name} -c listen_addresses='' -c fsync=off -c max_connections=8"
        run("pg_ctl", "-w", "-l", folder / "log", "-o", started, "start")
        try:
            yield f"host={name} user=tree dbname=postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")


def _plain_user() -> str | None:
    """Who runs it: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
