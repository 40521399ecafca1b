"""Log of the server: requests, model changes and problems, by the standard `logging`.

All records belong to the logger ``treekit.serve``.  `configure_logging` writes them to stderr, one
line each, as JSON or text.  Values from requests are escaped, so that they cannot forge lines or
control a terminal.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from treekit.errors import SettingError

if TYPE_CHECKING:
    from treekit.serve.models.repository import Change
    from treekit.serve.scheduling import RequestRecord

_MODES = ("text", "json", "quiet")
_MAX_LINES = 10_000
_MAX_PATH = 256
_PAUSE_SECONDS = 0.004
"""Seconds between writes of lines.  With 0.05, the many lines of a write would double the 99th
percentile of the time of a response (measured)."""

_BLOCKED_SECONDS = 0.05
_FLUSH_SECONDS = 5.0
_MAX_WRITE_BYTES = 4096
"""Maximum bytes of a write of several lines: PIPE_BUF of Linux, up to which writes are atomic."""

_CHANGE_MESSAGES = {
    "loaded": "{model} is loaded",
    "replaced": "model {name!r} is replaced by version {version}",
    "kept": "{model} is kept, as its new file was rejected: {reason}",
    "refused": "model {name!r} was rejected: {reason}",
    "removed": "{model} is removed",
    "unloaded": "{model} is unloaded",
}
_logger = logging.getLogger("treekit.serve")

# ---------------------------------------------------------------- records


class _Request(msgspec.Struct, gc=False):
    """An answered request, until it is formatted."""

    time: float
    seconds: float
    id: str
    method: str
    path: bytes
    client: str
    status: int
    model: str
    version: str
    rows: int
    error: str


class _Message(NamedTuple):
    """Message of an event: text, short fixed name, and facts for programs."""

    text: str
    event: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        return self.text


def log_request(
    record: RequestRecord, method: str, path: bytes, client: str, seconds: float
) -> None:
    """Log an answered request, if `configure_logging` was called.

    Queued without a record of `logging`, which would take 11 us of some 90 of a request of one row
    in place of 0.4 (``benchmarks/serving.py``), and formatted by the thread of the handler.

    Parameters
    ----------
    record : RequestRecord
    method : str
    path : bytes
        Raw path without the query, which may contain private data.
    client : str
        Address of the client.
    seconds : float
    """
    for handler in _request_handlers:
        handler.emit_request(record, method, path, client, seconds)


def log_event(event: str, message: str, *, level: str = "info", **facts: Any) -> None:
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
    number = logging.getLevelNamesMapping()[level.upper()]
    _logger.log(number, _Message(message, event, facts))


def log_changes(changes: Iterable[Change]) -> None:
    """Log changes of models."""
    for change in changes:
        model = f"model {change.name!r} {change.version}".rstrip()
        log_event(
            f"model-{change.what}",
            _CHANGE_MESSAGES[change.what].format(model=model, **change._asdict()),
            level="error" if change.what in ("kept", "refused") else "info",
            model=change.name,
            version=change.version,
            **({"reason": change.reason} if change.reason else {}),
        )


def log_failure(request_id: str, error: BaseException) -> None:
    """Log an unexpected error of a request with its traceback."""
    message = _Message(f"request {request_id} failed", "failed", {"id": request_id})
    _logger.error(message, exc_info=error)


def _get_level(status: int) -> str:
    """Return the log level for a status; 0 means no response."""
    if 0 < status < 400:
        return "info"
    return "error" if status >= 500 and status != 503 else "warning"


# ---------------------------------------------------------------- lines


class LineFormatter(logging.Formatter):
    """Formatter of a record as one line, in JSON or text.

    Parameters
    ----------
    mode : {"text", "json", "quiet"}
    pid : int
        Process id of a worker, added to JSON; 0 for a single process.
    """

    def __init__(self, mode: str, pid: int = 0) -> None:
        super().__init__()
        self._is_json = mode == "json"
        self._pid = {"pid": pid} if pid else {}

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; one of another logger is an event ``message``."""
        message = record.msg
        if not isinstance(message, _Message):
            message = _Message(_get_text(record), "message", {"logger": record.name})
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        level, stamp = record.levelname.lower(), _format_time(record.created)
        if self._is_json:
            entry = {"time": stamp, "level": level, "event": message.event}
            entry |= self._pid | message.facts | {"message": message.text}
            return _encode_json(entry | ({"traceback": trace} if trace else {}))
        lines = (f"{message.text}\n{trace}" if trace else message.text).splitlines()
        return f"{stamp} {level:<7} " + "\n    ".join(map(_escape_text, lines))

    def format_request(self, request: _Request) -> str:
        """Format an answered request."""
        level, stamp = _get_level(request.status), _format_time(request.time)
        path, ms = request.path[:_MAX_PATH].decode("latin-1"), request.seconds * 1e3
        if self._is_json:
            quote = _encode_json  # string by string: a dict takes 2 us more (measured)
            text = (
                f'{{"time": "{stamp}", "level": "{level}", "event": "request", '
                f'"id": {quote(request.id)}, "method": {quote(request.method)}, '
                f'"path": {quote(path)}, "status": {request.status}, "ms": {ms:.3f}, '
                f'"client": {quote(request.client)}'
            )
            if request.model:
                text += f', "model": {quote(request.model)}, "version": {quote(request.version)}'
                text += f', "rows": {request.rows}'
            return text + (f', "error": {quote(request.error)}}}' if request.error else "}")
        what = f": {request.error}" if request.error else ""
        if request.model:
            rows = "row" if request.rows == 1 else "rows"
            what = f" {request.rows} {rows} by {request.model} {request.version}{what}"
        return _escape_text(
            f"{stamp} {level:<7} {request.status} {request.method} {path} {ms:.1f} ms{what} "
            f"[{request.client} {request.id}]"
        )


def _format_time(seconds: float) -> str:
    """Format a time in UTC with milliseconds (RFC 3339)."""
    second, ms = divmod(int(seconds * 1000), 1000)
    return f"{_format_second(second)}.{ms:03}Z"


@lru_cache(1)
def _format_second(second: int) -> str:
    """Format a second in UTC; a new text for each line would take half of its time (measured)."""
    return datetime.fromtimestamp(second, UTC).isoformat()[:-6]


_encode_json = json.JSONEncoder(default=str).encode


def _get_text(record: logging.LogRecord) -> str:
    """Return the message of another logger's record, or its format string if formatting fails."""
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - the arguments may be anything
        return str(record.msg)
    if record.name == "py.warnings":  # omit the source line of treekit's own warnings
        _, own, warning = text.partition(": TreekitWarning: ")
        text = warning.split("\n  ")[0] if own else text
    return text.rstrip()


def _escape_text(text: str) -> str:
    """Escape control characters and line breaks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


# ---------------------------------------------------------------- writing


def write_to_stderr(data: bytes) -> int:
    """Write to the file descriptor of stderr, or drop the data if the process has no stderr."""
    if sys.__stderr__ is None:  # descriptor 2 may be any file, such as a socket
        return len(data)
    return os.write(2, data)


class _RawStream(io.RawIOBase):
    """Stream of a function that writes bytes; what a closed one does not take is dropped."""

    def __init__(self, write: Callable[[bytes], int]) -> None:
        self._write_bytes = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        while True:
            try:
                return self._write_bytes(bytes(data))
            except BlockingIOError:  # another program made the descriptor non-blocking
                time.sleep(_BLOCKED_SECONDS)
            except (OSError, ValueError):  # closed: the error cannot be reported
                return len(data)


class _LineListener(QueueListener):
    """Listener that writes lines in pieces that a pipe takes as a whole, so workers do not mix.

    The queue holds lines, requests to be formatted, and events to be set when all before is
    written.  The thread pauses before it waits for the next one: waking for each takes 25 us of
    CPU more for a request of one row, which has 90 (measured).
    """

    def __init__(
        self,
        lines: SimpleQueue[Any],
        format_request: Callable[[_Request], str],
        write: Callable[[bytes], int],
    ) -> None:
        super().__init__(lines)
        self._lines, self._format_request = lines, format_request
        self._stream = io.BufferedWriter(_RawStream(write), _MAX_WRITE_BYTES)

    def dequeue(self, block: bool) -> Any:
        """Return the next record; write the former ones if there is none yet."""
        if self._lines.empty():
            self._stream.flush()
            time.sleep(_PAUSE_SECONDS)
        return self._lines.get(block)

    def handle(self, record: Any) -> None:
        """Write a record and all queued ones: a call for each would take 1 us more (measured)."""
        lines, stream = self._lines, self._stream
        while record is not None:
            if isinstance(record, threading.Event):
                stream.flush()
                record.set()
            else:
                try:
                    line = record if isinstance(record, str) else self._format_request(record)
                    stream.write(f"{line}\n".encode())
                except Exception:  # noqa: BLE001, S110 - the thread must not end
                    pass
            if lines.empty():
                return
            record = lines.get()
        self.enqueue_sentinel()  # which ends the thread


class LineHandler(QueueHandler):
    """Handler that formats records, and queues them for a thread that writes them to stderr.

    If stderr is blocked, lines are dropped; their number is logged later.

    Parameters
    ----------
    mode : {"text", "json", "quiet"}
    pid : int
        As for `LineFormatter`.
    write : callable
        Function that writes bytes and returns their number; may block or raise OSError.
    """

    def __init__(
        self, mode: str, pid: int = 0, write: Callable[[bytes], int] = write_to_stderr
    ) -> None:
        if mode not in _MODES:
            raise SettingError(f"unknown log mode {mode!r}; choose from: {', '.join(_MODES)}")
        self._lines: SimpleQueue[Any] = SimpleQueue()
        super().__init__(self._lines)
        self._is_quiet = mode == "quiet"
        self._is_closed = False
        self._n_lost = 0
        formatter = LineFormatter(mode, pid)
        self.setFormatter(formatter)
        self.listener = _LineListener(self._lines, formatter.format_request, write)
        self.listener.start()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged: of other loggers warnings, in quiet mode errors."""
        lowest_level = logging.ERROR if self._is_quiet else logging.WARNING
        return isinstance(record.msg, _Message) or record.levelno >= lowest_level

    def prepare(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return self.format(record)

    def enqueue(self, record: Any) -> None:
        """Queue a line or a request, or count it as lost."""
        if self._lines.qsize() >= _MAX_LINES:
            self._n_lost += 1
            return
        if self._n_lost:
            text = f"{self._n_lost} lines were lost: stderr did not accept them"
            self._n_lost = 0  # before a line of its own
            log_event("lost", text, level="warning")
        self._lines.put(record)

    def handleError(self, _: logging.LogRecord) -> None:  # noqa: N802
        """Count a record that cannot be formatted as lost: logging must not fail a request."""
        self._n_lost += 1

    def emit_request(
        self, record: RequestRecord, method: str, path: bytes, client: str, seconds: float
    ) -> None:
        """Queue a request, in a quiet log only one that has failed."""
        if not self._is_quiet or _get_level(record.status) == "error":
            self.enqueue(
                _Request(
                    time.time(), seconds, record.id, method, path, client,
                    record.status, record.model, record.version, record.rows, record.error,
                )
            )  # fmt: skip

    def flush(self) -> None:
        """Wait until all lines are written, but not long for a blocked stderr."""
        if not self._is_closed:  # then no thread writes what came later
            written = threading.Event()
            self._lines.put(written)
            written.wait(_FLUSH_SECONDS)

    def close(self) -> None:
        """Write all lines and end the thread."""
        self.flush()
        if not self._is_closed:
            self._is_closed = True
            self.listener.enqueue_sentinel()  # `stop` would wait for a blocked stderr
        super().close()


_request_handlers: list[LineHandler] = []
"""Handler of the lines of requests, once logging is configured."""


def configure_logging(mode: str, pid: int = 0) -> LineHandler:
    """Write the log of this process to stderr, with warnings and errors of all loggers.

    Parameters
    ----------
    mode : {"text", "json", "quiet"}
    pid : int
        As for `LineFormatter`.

    Returns
    -------
    LineHandler
        To flush before the process ends.

    Raises
    ------
    SettingError
        If the mode is unknown.
    """
    handler, root = LineHandler(mode, pid), logging.getLogger()
    _logger.setLevel(logging.INFO)
    _request_handlers[:] = [handler]
    for former in [one for one in root.handlers if isinstance(one, LineHandler)]:
        former.close()
        root.removeHandler(former)
    root.addHandler(handler)
    logging.captureWarnings(True)
    return handler
