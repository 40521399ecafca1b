"""Headless Chromium, driven through a pipe by its DevTools protocol.

Messages are JSON texts ending in a zero byte (``--remote-debugging-pipe``).  The browser
reads them from file descriptor 3 and writes to 4, so no port, driver or library is needed.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

__all__ = ["Browser"]

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--disable-default-apps", "--mute-audio", "--no-first-run"),
    *("--hide-scrollbars", "--force-device-scale-factor=1", "--remote-debugging-pipe"),
)
_PATIENCE = 60.0
_KEYS = {"Backspace": 8, "Tab": 9, "Enter": 13}

_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in enumerate(ends, 3):
    os.dup2(end, place)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Script that moves the pipes to descriptors 3 and 4, then becomes the browser."""


class Browser:
    """One page of one browser, by default without a network.

    Parameters
    ----------
    folder : Path
        Folder of the browser's own files.
    online : bool
        Whether pages may use the network, for pages of a server on this machine.

    Attributes
    ----------
    requests : list of str
        Addresses requested since `open`, successfully or not.
    complaints : list of str
        Opened dialogs, script exceptions and console messages since `open`.
    """

    def __init__(self, folder: Path, *, online: bool = False) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._number = 0
        self._unread = b""
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        launch = [sys.executable, "-c", _LAUNCH, str(to_browser), str(from_browser)]
        program = shutil.which("chromium") or "chromium"
        self._process = subprocess.Popen(
            [*launch, program, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._read, selectors.EVENT_READ)
        self._session = ""
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.online(online)

    def close(self) -> None:
        """Stop the browser."""
        self._process.terminate()
        self._process.wait(_PATIENCE)
        self._selector.close()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send one command and wait for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, said["error"]
                return said["result"]

    def online(self, yes: bool) -> None:
        """Switch the network on or off."""
        self.call("Network.emulateNetworkConditions", offline=not yes, latency=0,
                  downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip

    def open(self, place: Path | str) -> None:
        """Load a file or an address, and wait until loading is complete."""
        address = place if isinstance(place, str) else place.resolve().as_uri()
        # Navigating between fragments of one page does not load it again.
        self.call("Page.navigate", url="about:blank")
        self.wait("document.readyState === 'complete' && location.href === 'about:blank'")
        self.requests.clear()
        self.complaints.clear()
        self.call("Page.navigate", url=address)
        there = f"location.href.startsWith({json.dumps(address.partition('#')[0])})"
        self.wait(f"document.readyState === 'complete' && {there}")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.ask(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def ask(self, expression: str) -> Any:
        """Evaluate a JavaScript expression in the page."""
        said = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Press and release a key: ``Tab``, ``Enter``."""
        pressed = {"key": key, "windowsVirtualKeyCode": _KEYS.get(key, 32)}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **pressed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def type(self, text: str) -> None:
        """Enter text at the cursor."""
        self.call("Input.insertText", text=text)

    def show(self, width: int, height: int = 800, *, dark: bool = False, media: str = "") -> None:
        """Set the page's size, colour scheme and medium."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[feature])

    def scripts(self, *, run: bool) -> None:
        """Enable or disable scripts of pages opened afterwards."""
        self.call("Emulation.setScriptExecutionDisabled", value=not run)

    def picture(self, *, whole: bool = False) -> bytes:
        """Return a PNG of the visible part, or of the complete page."""
        said = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(said["data"])

    def colour(self, x: float, y: float) -> tuple[int, ...]:
        """Return the red, green and blue of one pixel of the page, from 0 to 255."""
        clip = {"x": int(x), "y": int(y), "width": 1, "height": 1, "scale": 1}
        said = self.call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        rest, packed = base64.b64decode(said["data"])[8:], b""
        while rest:
            size = int.from_bytes(rest[:4])
            packed += rest[8 : 8 + size] if rest[4:8] == b"IDAT" else b""
            rest = rest[12 + size :]
        return tuple(
            zlib.decompress(packed)[1:4]
        )  # behind the filter, which changes no first pixel

    def count_lines(self, selector: str) -> dict[str, int]:
        """Return the number of lines of each visible element that has text, by its text."""
        found: dict[str, int] = self.ask(
            "Object.fromEntries([...document.querySelectorAll("
            + json.dumps(selector)
            + ")].filter((one) => one.checkVisibility() && one.innerText.trim()).map((one) => {"
            " const range = document.createRange(); range.selectNodeContents(one);"
            " const tops = [...range.getClientRects()].map((box) => Math.round(box.bottom / 8));"
            " return [one.innerText.trim(), new Set(tops).size]; }))"
        )
        return found

    def printed(self) -> bytes:
        """Return the page as a PDF."""
        said = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(said["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            assert self._selector.select(_PATIENCE), "the browser does not respond"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has exited"
            self._unread += piece
        line, self._unread = self._unread.split(b"\0", 1)
        said: dict[str, Any] = json.loads(line)
        self._note(said.get("method", ""), said.get("params", {}))
        return said

    def _note(self, method: str, what: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        elif method in ("Page.javascriptDialogOpening", "Runtime.exceptionThrown"):
            self.complaints.append(json.dumps(what))
        elif method == "Log.entryAdded":
            self.complaints.append(what["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(what["args"]))
