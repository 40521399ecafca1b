"""Temporary servers on Unix sockets: `postgres`, run by an unprivileged user, and `mysql`."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runtimes import need

_FLAGS = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username=tree")


def _programs() -> Path | None:
    """Find the folder of initdb and postgres, which Debian does not add to the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return places[-1].parent if places else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Return the connection string of a server; skip if PostgreSQL is not installed."""
    need("psycopg")
    with run_server() as address:
        yield address


@pytest.fixture(scope="session")
def mysql() -> Iterator[str]:
    """Return the URL of a server of MariaDB; skip if it is not installed."""
    need("pymysql", "mariadb-install-db")
    with run_mariadb() as url:
        yield url


@contextmanager
def run_mariadb() -> Iterator[str]:
    """Run a server of MariaDB during the context, without a network, and yield its URL."""
    with tempfile.TemporaryDirectory(prefix="my-") as name:
        log, socket = Path(name, "log"), Path(name, "socket")
        user = [f"--user={pwd.getpwuid(os.geteuid()).pw_name}"]
        common = ["--no-defaults", f"--datadir={name}/data", *user]
        made = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal"]
        # Debian's folder of servers is not in the PATH of every user.
        program = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin") or "mariadbd"
        server = [program, *common, "--skip-networking", f"--socket={socket}"]
        server += [f"--pid-file={name}/pid", "--innodb-flush-log-at-trx-commit=0"]
        with log.open("wb") as stream:
            subprocess.run(made, stdout=stream, stderr=stream, check=True)
            with subprocess.Popen(server, stdout=stream, stderr=stream) as process:
                try:
                    for _ in range(600):
                        if socket.exists() or process.poll() is not None:
                            break
                        time.sleep(0.1)
                    assert socket.exists(), log.read_text(errors="replace")
                    yield f"mysql://root@localhost/test?unix_socket={socket}"
                finally:
                    process.terminate()


@contextmanager
def run_server() -> Iterator[str]:
    """Run a server during the context and yield its connection string."""
    programs = _programs()
    if programs is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("PostgreSQL is not installed")
    user = _plain_user()
    # The path of a Unix socket is limited to 107 bytes.
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
            # The server inherits the streams: a pipe would never reach its end.
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
    """Return the user to run the server as, None for the current one; PostgreSQL rejects root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
