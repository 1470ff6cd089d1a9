"""A headless Chromium, driven through its debugging pipe: no port, no library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 60.0


class Browser:
    """One page. requests: addresses it asked for."""

    def __init__(self, profile: Path) -> None:
        program = next((p for n in NAMES if (p := shutil.which(n))), None)
        if program is None:
            pytest.skip("no Chromium here (apt-get install chromium)")
        take, self._to = os.pipe()
        self._from, give = os.pipe()
        options = ["--headless=new", "--disable-gpu", "--no-first-run", "--no-sandbox"]
        options += ["--disable-background-networking", "--disable-component-update"]
        options += ["--disable-dev-shm-usage", "--remote-debugging-pipe"]
        line = f'exec "$@" 3<&{take} 4>&{give}'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                line,
                "_",
                program,
                *options,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(take, give),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(take)
        os.close(give)
        self._data = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.dialogs = 0
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command; events on the way are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                answer: dict[str, Any] = reply["result"]
                return answer

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._data:
            piece = os.read(self._from, 1 << 20)
            assert piece, "the browser ended"
            self._data += piece
        frame, _, self._data = self._data.partition(b"\0")
        message: dict[str, Any] = json.loads(frame)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        if message.get("method") == "Page.javascriptDialogOpening":
            self.dialogs += 1
        return message

    def open(self, address: str, width: int) -> None:
        """Goes to the address in a window of that width, and waits until it is there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.ask("Page.navigate", url=address)
        self.wait(f"location.href.startsWith({json.dumps(address[:60])})")

    def wait(self, condition: str) -> None:
        """Until the page is loaded and the condition holds."""
        end = time.monotonic() + SECONDS
        while not self.value(f"document.readyState === 'complete' && ({condition})"):
            assert time.monotonic() < end, condition
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"]
        return result.get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key, down and up."""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **named, text=text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **named)

    def type(self, text: str) -> None:
        """Text into what has the focus."""
        self.ask("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """What is seen, as a PNG."""
        data = self.ask("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """Ends the browser."""
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
