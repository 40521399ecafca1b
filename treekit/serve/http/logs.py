"""Log of the server: one line on stderr for each request, model change and problem.

Lines are JSON, text, or quiet (without requests).  Values from requests are escaped, so that they
cannot forge lines or control a terminal.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from treekit.errors import SettingError

if TYPE_CHECKING:
    from treekit.serve.http.metrics import RequestRecord
    from treekit.serve.models.repository import Change


# ---------------------------------------------------------------- writer
# Bounded queue of lines, written to stderr by a thread, so that logging never blocks.

_DELAY_SECONDS = 0.05
_MAX_LINES = 10_000
MAX_WRITE_BYTES = 4096
"""Maximum bytes per write of complete lines: PIPE_BUF of Linux (POSIX), up to which writes to a
pipe are atomic, so that lines of several processes do not mix."""


Lines = bytes | Callable[[], Iterable[bytes]]
"""A line, or a function that creates lines in the writer's thread."""


def write_to_stderr(data: bytes) -> int:
    """Write to the file descriptor of stderr, or drop the data if the process has no stderr.

    Without stderr, descriptor 2 may be any file, such as a client's socket.
    """
    if sys.__stderr__ is None:
        return len(data)
    return os.write(2, data)


class LineWriter:
    """Asynchronous writer of lines.

    If a pipe is closed or not read, lines are dropped; their number is logged when writing
    succeeds again.

    Parameters
    ----------
    write : callable
        Function that writes bytes and returns their number; may block or raise OSError.
    delay : float
        Seconds for which lines are collected.
    most : int
        Maximum queued lines or groups of lines.
    make_lost_line : callable
        Function that creates the line reporting a number of lost lines.
    """

    def __init__(
        self,
        write: Callable[[bytes], int] = write_to_stderr,
        delay: float = _DELAY_SECONDS,
        most: int = _MAX_LINES,
        lost: Callable[[int], bytes] = lambda count: b"warning: %d log lines were lost\n" % count,
    ) -> None:
        self._write_bytes, self._delay, self._most = write, delay, most
        self.make_lost_line = lost
        self._reset_state()
        _writers.add(self)

    def _reset_state(self) -> None:
        """Reset the state, initially and in a forked process, which lacks the thread."""
        self._lines: deque[Lines] = deque()
        self._has_lines, self._write_now, self._idle = (threading.Event() for _ in range(3))
        self._thread: threading.Thread | None = None
        self._busy = False
        self._dropped = 0

    def queue_lines(self, lines: Lines, at_once: bool = False, count: int = 1) -> None:
        """Queue a line with its line end, or `count` lines, or a function that creates lines.

        They are written after the delay, or at once.
        """
        if len(self._lines) >= self._most:
            self.count_lost(count)
            return
        self._lines.append(lines)
        if not self._busy:  # checked after the line was added: see _run
            self._wake_thread()
        if at_once:
            self._write_now.set()

    def flush(self, seconds: float = 1.0) -> bool:
        """Wait until all lines are written; return whether they were.

        Gives up after `seconds` without progress, or ten times that in total.
        """
        until, left = time.monotonic() + seconds, len(self._lines)
        end = until + 9 * seconds
        while self._lines or self._busy:
            self._write_now.set()
            self._idle.wait(min(seconds, 0.05))
            if len(self._lines) < left:
                until, left = time.monotonic() + seconds, len(self._lines)
            if time.monotonic() >= min(until, end):
                return False
        return True

    def _wake_thread(self) -> None:
        self._busy = True
        self._idle.clear()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._write_loop, name="treekit-log", daemon=True
            )
            self._thread.start()
        self._has_lines.set()

    def _write_loop(self) -> None:
        while True:
            self._has_lines.wait()
            self._has_lines.clear()
            while self._lines:
                self._write_now.wait(self._delay)
                self._write_now.clear()
                self._write_queued()
            self._busy = False
            # Lines added while `_busy` was set did not wake the thread.
            if self._lines:
                self._busy = True
                self._has_lines.set()
            else:
                self._idle.set()

    def _write_queued(self) -> None:
        piece = b""
        while self._lines:
            for line in self._take_lines():
                if piece and len(piece) + len(line) > MAX_WRITE_BYTES:
                    self._write_data(piece)
                    piece = b""
                piece += line
        self._write_data(piece)
        if self._dropped:
            count, self._dropped = self._dropped, 0
            self._write_data(self.make_lost_line(count))

    def _take_lines(self) -> Iterable[bytes]:
        first = self._lines.popleft()
        if isinstance(first, bytes):
            return (first,)
        try:
            return first()
        # An error must not end the thread, which would silently stop the log.
        except Exception:  # noqa: BLE001
            self.count_lost()
            return ()

    def count_lost(self, count: int = 1) -> None:
        """Count lines that could not be written, reported with the next lines."""
        self._dropped += count

    def _write_data(self, data: bytes) -> None:
        while data:
            try:
                data = data[self._write_bytes(data) :]
            except BlockingIOError:  # another program made the descriptor non-blocking
                time.sleep(0.02)
            except (OSError, ValueError):
                return  # closed: the error cannot be reported


_writers: weakref.WeakSet[LineWriter] = weakref.WeakSet()


def _flush_writers() -> None:
    for writer in _writers:
        writer.flush()


def _reset_writers() -> None:
    for writer in _writers:
        writer._reset_state()


atexit.register(_flush_writers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_writers)


# ---------------------------------------------------------------- logs

_MODES = ("text", "json", "quiet")
_MAX_PATH = 256
_GROUP_SIZE = 16
"""Number of requests whose lines are formatted together."""
_CHANGE_MESSAGES = {
    "loaded": "{model} is loaded",
    "replaced": "model {name!r} is replaced by version {version}",
    "kept": "{model} is kept, as its new file was rejected: {reason}",
    "refused": "model {name!r} was rejected: {reason}",
    "removed": "{model} is removed",
    "unloaded": "{model} is unloaded",
}

_MILLISECONDS = [f".{number:03d}Z" for number in range(1000)]

Level = Literal["info", "warning", "error"]


class _RequestLine(NamedTuple):
    """Data of the log line of a request."""

    record: RequestRecord
    level: Level
    method: str
    path: bytes
    client: str
    seconds: float
    now: float


class Log:
    """Log of one process.

    Parameters
    ----------
    mode : {"text", "json", "quiet"}
    writer : LineWriter, optional
        Default: the shared writer to stderr.
    worker : int
        Number of this worker process from 1; 0 for a single process.
    """

    def __init__(
        self, mode: str = "text", writer: LineWriter | None = None, *, worker: int = 0
    ) -> None:
        if mode not in _MODES:
            raise SettingError(f"unknown log mode {mode!r}; choose from: {', '.join(_MODES)}")
        self.mode = mode
        self._worker_facts = {"worker": worker} if worker else {}
        self._is_json = mode == "json"
        self._logs_requests = mode != "quiet"
        self._writer = writer or _stderr_writer
        self._writer.make_lost_line = self._format_lost
        self._cached_second = (0, "")
        # Formatting lines in a group takes a third of the time of formatting each within its
        # request (measured); formatting all in the writer's thread would compete with requests
        # for the interpreter.
        self._waiting: deque[_RequestLine] = deque()
        self._format_lock = threading.Lock()

    # ---------------------------------------------------------------- requests

    def log_request(
        self, record: RequestRecord, method: str, path: bytes, client: str, seconds: float
    ) -> None:
        """Log an answered request.

        Parameters
        ----------
        record : Told
            Its id consists of letters, digits and ``._-``, ensured by the middleware.
        method : str
        path : bytes
            Raw path without the query, which may contain private data.
        client : str
            Address of the client.
        seconds : float
        """
        status = record.status
        level: Level = "info" if 0 < status < 400 else _status_level(status)
        if not self._logs_requests and level != "error":
            return
        waiting = self._waiting
        waiting.append(
            _RequestLine(record, level, method, path[:_MAX_PATH], client, seconds, time.time())
        )
        if len(waiting) >= _GROUP_SIZE or level == "error":
            self._flush_requests(at_once=level == "error")
        elif len(waiting) == 1:
            self._writer.queue_lines(
                partial(self._format_requests, waiting), count=0
            )  # unless handed over before

    def _flush_requests(self, at_once: bool = False) -> None:
        """Format the waiting lines and queue them."""
        waiting, self._waiting = self._waiting, deque()
        lines = self._format_requests(waiting)
        whole = b"".join(lines)
        if len(whole) <= MAX_WRITE_BYTES:  # one item in the queue instead of one per line
            self._writer.queue_lines(whole, at_once, len(lines))
            return
        for line in lines:
            self._writer.queue_lines(line, at_once)

    def _format_requests(self, waiting: deque[_RequestLine]) -> list[bytes]:
        """Format the lines of requests; called by a later request or the writer's thread."""
        line, lines = self._format_json if self._is_json else self._format_text, []
        with self._format_lock:
            while waiting:
                try:
                    lines.append(line(waiting.popleft()))
                except Exception:  # noqa: BLE001 - logging must not fail a request
                    self._writer.count_lost()
        return lines

    def _format_json(self, one: _RequestLine) -> bytes:
        record, level, method, path, client, seconds, now = one
        more = ""
        if record.model:
            more = (
                f',"model":{_quote_json(record.model)},"version":{_quote_json(record.version)}'
                f',"rows":{record.rows}'
            )
        if record.error:
            more += f',"error":{_quote_json.__wrapped__(record.error)}'
        return (
            f'{{"time":"{self._format_time(now)}","level":"{level}","event":"request","id":"{record.id}"'
            f',"method":{_quote_json(method)},"path":{_quote_json(path)},"status":{record.status}'
            f',"ms":{int(seconds * 1e6) / 1e3},"client":{_quote_json(client)}{more}}}\n'
        ).encode()

    def _format_text(self, one: _RequestLine) -> bytes:
        record, level, method, path, client, seconds, now = one
        what = ""
        if record.model:
            rows = "row" if record.rows == 1 else "rows"
            what = f" {record.rows} {rows} by {record.model} {record.version}"
        if record.error:
            what += f": {record.error}"
        text = (
            f"{level:<7} {record.status} {method} {path.decode('latin-1')} "
            f"{seconds * 1e3:.1f} ms{what} "
            f"[{client} {record.id}]"
        )
        return f"{self._format_time(now)} {_escape_text(text)}\n".encode()

    # ------------------------------------------------------------------ events

    def __call__(self, event: str, message: str, *, level: str = "info", **facts: Any) -> None:
        """Log an event.

        Parameters
        ----------
        event : str
            Short fixed name, for programs.
        message : str
            Message for people; further lines are indented.
        level : {"info", "warning", "error"}
        **facts
            JSON values with the details of the message, for programs.
        """
        if self._is_json:
            entry = {
                "time": self._format_now(),
                "level": level,
                "event": event,
                **self._worker_facts,
                **facts,
            }
            line = _encode_line({**entry, "message": message})
        else:
            first, *more = message.splitlines() or [""]
            text = "".join(f"\n    {_escape_text(part)}" for part in more)
            line = f"{self._format_now()} {level:<7} {_escape_text(first)}{text}\n".encode()
        if self._waiting:
            self._flush_requests()
        self._writer.queue_lines(line, level != "info")

    def log_changes(self, changes: Iterable[Change]) -> None:
        """Log changes of models."""
        for change in changes:
            model = f"model {change.name!r} {change.version}".rstrip()
            self(
                f"model-{change.what}",
                _CHANGE_MESSAGES[change.what].format(model=model, **change._asdict()),
                level="error" if change.what in ("kept", "refused") else "info",
                model=change.name,
                version=change.version,
                **({"reason": change.reason} if change.reason else {}),
            )

    def log_failure(self, request_id: str, error: BaseException) -> None:
        """Log an unexpected error of a request with its traceback."""
        trace = "".join(traceback.format_exception(error))
        if self._is_json:
            self("failed", repr(error), level="error", id=request_id, traceback=trace)
        else:
            self("failed", f"request {request_id} failed\n{trace}", level="error")

    def close(self) -> None:
        """Write all waiting lines, if possible."""
        if self._waiting:
            self._flush_requests()
        self._writer.flush()

    # ----------------------------------------------------------------- helpers

    def _format_now(self) -> str:
        return self._format_time(time.time())

    def _format_time(self, now: float) -> str:
        """Format a time in UTC with milliseconds (RFC 3339), caching the text of a second."""
        second = int(now)
        known, text = self._cached_second
        if known != second:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._cached_second = second, text
        return text + _MILLISECONDS[int((now - second) * 1000)]

    def _format_lost(self, count: int) -> bytes:
        text = f"{count} lines were lost: stderr did not accept them"
        entry = {"time": self._format_now(), "level": "warning", "event": "lost", "message": text}
        return (
            _encode_line(entry)
            if self._is_json
            else f"{self._format_now()} warning {text}\n".encode()
        )


class LogHandler(logging.Handler):
    """Handler that writes records of Python loggers, including uvicorn's, to a `Log`."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.ERROR if log.mode == "quiet" else logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record, or its format string if it cannot be formatted."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - the arguments may be anything
            message = str(record.msg)
        if record.name == "py.warnings":  # omit the source line of treekit's own warnings
            _, own, warning = message.partition(": TreekitWarning: ")
            message = warning.split("\n  ")[0] if own else message
        if record.exc_info and record.exc_info[1] is not None:
            message = (
                f"{message.rstrip()}\n{''.join(traceback.format_exception(record.exc_info[1]))}"
            )
        level = "error" if record.levelno >= logging.ERROR else "warning"
        self._log("message", message.rstrip(), level=level, logger=record.name)


def configure_logging(mode: str, *, worker: int = 0) -> Log:
    """Create the log of this process and redirect Python loggers and warnings to it.

    Parameters
    ----------
    mode : {"text", "json", "quiet"}
    worker : int
        As for `Log`.

    Raises
    ------
    SettingError
        If the mode is unknown.
    """
    log = Log(mode, worker=worker)
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, LogHandler)]:
        root.removeHandler(handler)
    root.addHandler(LogHandler(log))
    logging.captureWarnings(True)
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # The middleware logs requests.
    logging.getLogger("uvicorn.access").handlers.clear()
    logging.getLogger("uvicorn.access").propagate = False
    return log


def _status_level(status: int) -> Level:
    """Return the log level of an unsuccessful status; 0 means no response."""
    return "error" if status >= 500 and status != 503 else "warning"


def _escape_text(text: str) -> str:
    """Escape control characters and line breaks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@lru_cache(1024)
def _quote_json(text: str | bytes) -> str:
    """Encode a text as ASCII JSON, cached as there are few paths and names."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    return json.dumps(text)


def _encode_line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, default=str).encode() + b"\n"


_stderr_writer = LineWriter()
