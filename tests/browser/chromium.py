"""Finds a Chromium and starts it as the tests need it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING: Final = (
    "no Chromium for the browser tests: install one (Debian: apt install chromium) "
    "or run `python -m playwright install chromium`"
)


class NoChromium(Exception):
    """There is no browser to drive; the message says what to install."""


def launch(playwright: Playwright) -> Browser:
    """An installed Chromium, else Playwright's own; raises NoChromium without either."""
    installed = next((path for name in NAMES if (path := shutil.which(name))), None)
    own = playwright.chromium.executable_path
    path = installed or (own if os.path.exists(own) else None)
    if path is None:
        raise NoChromium(MISSING)
    return playwright.chromium.launch(executable_path=path, args=list(FLAGS))
