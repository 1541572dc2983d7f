"""A real Chromium, driven over the pipe of its DevTools protocol: the standard library suffices."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio", "--remote-debugging-pipe",
)  # fmt: skip

# Becomes the browser, with the two ends of the pipe where it looks for them.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in zip((3, 4), ends):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """The path of a Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One tab. Messages go through file descriptors 3 and 4, a null byte after each."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command_read, self._write = os.pipe()
        self._read, answer_write = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, str(command_read), str(answer_write), program, *flags],
            pass_fds=(command_read, answer_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        self._pending = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        pages = self.call("Target.getTargets")["targetInfos"]
        (page,) = [p for p in pages if p["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._session = None
            self.call("Browser.close", patience=5)
        except (OSError, TimeoutError):
            self.process.kill()
        self.process.wait(timeout=20)
        os.close(self._write)
        os.close(self._read)
        self.profile.cleanup()

    def call(self, method: str, patience: float = 120, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its result; events that come before it are kept."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + patience
        while True:
            answer = self._receive(until)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._read], [], [], max(until - time.monotonic(), 0))
            if not ready:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise OSError("the browser has ended")
            self._pending += part
        text, _, self._pending = self._pending.partition(b"\0")
        return json.loads(text)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a file, in a window and color scheme, and wait until its model has read the rows."""
        self.events.clear()
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip
        media = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce",  # nothing to wait for
        }
        features = [{"name": name, "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=path.as_uri())
        until = time.monotonic() + 60
        while not self.evaluate("document.readyState === 'complete' && !!window.mnemosphere"):
            if time.monotonic() > until:
                raise TimeoutError(f"{path} does not load")
            time.sleep(0.02)
        assert self.evaluate("window.mnemosphere.ready") is True

    def drag(self, points: list[tuple[float, float]]) -> None:
        """Press at the first point of the page, move along the others, let go."""
        for kind, (x, y) in [("mousePressed", points[0]), *(("mouseMoved", p) for p in points[1:]),
                             ("mouseReleased", points[-1])]:  # fmt: skip
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1,
                clickCount=1,
            )  # fmt: skip

    def requests(self) -> list[str]:
        """Addresses asked for since the last `open`, the page itself and data in it left out."""
        self.evaluate("1")
        sent = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        urls = [s["request"]["url"] for s in sent if s.get("type") != "Document"]
        return [url for url in urls if not url.startswith(("data:", "blob:"))]

    def complaints(self) -> list[str]:
        """Errors, warnings and logs since the last `open`."""
        self.evaluate("1")
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(e["params"])[:500] for e in self.events if e.get("method") in kinds]
