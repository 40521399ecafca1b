"""State that the workers of a server share: who serves, and which models were loaded or unloaded.

uvicorn's supervisor passes no messages, so workers and their parent share a database.  A request to
load or unload a model is a row that each worker executes after the rows before; it is answered when
all workers have executed it, so no worker serves a model after the request that unloaded it was
answered.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from treekit.serve.errors import UnavailableError
from treekit.serve.models.repository import Change, Do, Repository

_POLL_SECONDS = 0.02
_LOCK_SECONDS = 30.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS worker (number INTEGER PRIMARY KEY, pid INTEGER, "
    "done INTEGER, is_ready INTEGER DEFAULT 0, error TEXT DEFAULT '')",
    "CREATE TABLE IF NOT EXISTS change (number INTEGER PRIMARY KEY AUTOINCREMENT, "
    "what TEXT, name TEXT)",
    "CREATE TABLE IF NOT EXISTS server (event TEXT PRIMARY KEY, message TEXT)",
)


class SharedState:
    """State shared by the workers of a server and their parent.

    Parameters
    ----------
    path : Path
        File of the database.

    Attributes
    ----------
    number : int
        Number of this worker from 1; 0 in the parent.
    """

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(
            path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._lock = threading.Lock()
        self.number = 0
        self._errors: dict[int, Exception] = {}
        for statement in _TABLES:
            self._run(statement)

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, which is a transaction by itself."""
        with self._lock:
            return self._database.execute(statement, values).fetchall()

    # ---------------------------------------------------------------- parent

    @property
    def is_started(self) -> bool:
        """Whether all workers were ready once."""
        return bool(self._run("SELECT 1 FROM server WHERE event = 'started'"))

    def mark_started(self) -> None:
        """Record that all workers are ready."""
        self._run("INSERT INTO server VALUES ('started', '')")

    def report_error(self, error: Exception) -> None:
        """Report to the parent that a worker cannot start."""
        text = str(error).encode(errors="backslashreplace").decode()
        self._run("INSERT OR REPLACE INTO server VALUES ('error', ?)", text)

    def read_error(self) -> str:
        """Return the error of a worker that cannot start, or nothing."""
        found = self._run("SELECT message FROM server WHERE event = 'error'")
        return str(found[0][0]) if found else ""

    def count_ready(self) -> int:
        """Return the number of workers that serve requests."""
        return int(self._run("SELECT count(*) FROM worker WHERE is_ready")[0][0])

    def find_number(self, pid: int) -> int:
        """Return the number of a worker process, or 0 if it has none."""
        found = self._run("SELECT number FROM worker WHERE pid = ?", pid)
        return int(found[0][0]) if found else 0

    def keep_workers(self, pids: Iterable[int | None]) -> None:
        """Remove all workers but those of these processes."""
        kept = ", ".join(str(pid) for pid in pids if pid)
        self._run(f"DELETE FROM worker WHERE pid NOT IN ({kept})")  # noqa: S608 - numbers

    # ---------------------------------------------------------------- workers

    def join(self, repository: Repository, patience: float) -> None:
        """Join as a worker, whose models are not loaded yet; changes wait `patience` seconds."""
        self._repository, self._patience = repository, patience
        [(self.number, self._done)] = self._run(
            "INSERT INTO worker (number, pid, done) VALUES ("
            "(SELECT min(n) FROM (SELECT 1 AS n UNION SELECT number + 1 FROM worker) "
            "WHERE n NOT IN (SELECT number FROM worker)), ?, "
            "(SELECT coalesce(max(number), 0) FROM change)) RETURNING number, done",
            os.getpid(),
        )
        unloaded = self._run(
            "SELECT name FROM change WHERE what = 'unload' AND number IN "
            "(SELECT max(number) FROM change WHERE number <= ? GROUP BY name)",
            self._done,
        )
        repository.leave_out(name for (name,) in unloaded)
        repository.everywhere = self._broadcast

    def mark_ready(self) -> None:
        """Record that this worker serves requests."""
        self._run("UPDATE worker SET is_ready = 1 WHERE number = ?", self.number)

    def follow_changes(self) -> None:
        """Execute all changes, now and in a thread."""
        while self._execute_next():
            pass
        threading.Thread(target=self._follow, name="treekit-changes", daemon=True).start()

    def _follow(self) -> None:
        while True:
            if not self._execute_next():
                time.sleep(_POLL_SECONDS)

    def _execute_next(self) -> bool:
        found = self._run(
            "SELECT number, what, name FROM change WHERE number > ? ORDER BY number LIMIT 1",
            self._done,
        )
        for number, what, name in found:
            text = ""
            try:
                self._repository.do_here(what, name)
            # Any error must be reported, as another worker waits for the result.
            except Exception as error:  # noqa: BLE001
                self._errors[number] = error.with_traceback(None)
                text = str(error).encode(errors="backslashreplace").decode()
            self._done = number
            statement = "UPDATE worker SET done = ?, error = ? WHERE number = ?"
            self._run(statement, number, text, self.number)
        return bool(found)

    def _broadcast(self, what: Do, name: str) -> list[Change]:
        """Load or unload a model in all workers; `Repository.everywhere`.

        Raises
        ------
        ServeError
            If a worker fails, or does not confirm it in time.
        """
        statement = "INSERT INTO change (what, name) VALUES (?, ?) RETURNING number"
        [(number,)] = self._run(statement, what, name)
        end = time.monotonic() + self._patience
        while late := self._run("SELECT number FROM worker WHERE done < ?", number):
            if time.monotonic() > end:
                raise UnavailableError(
                    f"worker {late[0][0]} has not confirmed that model {name!r} was {what}ed; retry"
                )
            time.sleep(_POLL_SECONDS)
        if error := self._errors.pop(number, None):
            self._run("DELETE FROM change WHERE number = ?", number)  # for workers that start later
            raise error
        failed = "SELECT number, error FROM worker WHERE done = ? AND error <> ''"
        for other, text in self._run(failed, number):
            raise UnavailableError(f"worker {other}: {text}")
        return []
