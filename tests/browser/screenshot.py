"""Takes the README's picture of the Prompt page: `python tests/browser/screenshot.py URL PROMPT_ID [OUT]`.

URL is a running dashboard's, e.g. http://127.0.0.1:8501; OUT is `docs/images/prompt.png` unless said otherwise.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chromium import NoChromium, launch
from playwright.sync_api import Error, sync_playwright

DEFAULT_OUT = Path(__file__).resolve().parents[2] / "docs" / "images" / "prompt.png"


def main() -> int:
    """Takes the picture; 0 when it lies there, 2 with one line on stderr when it cannot be taken."""
    parser = argparse.ArgumentParser(description="Takes a picture of the Prompt page.")
    parser.add_argument("url", help="address of the dashboard")
    parser.add_argument("prompt_id")
    parser.add_argument("out", nargs="?", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--width", type=int, default=1440)
    parser.add_argument("--height", type=int, default=0, help="pixels; 0: as far as the token timeline")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            page = browser.new_context(
                viewport={"width": options.width, "height": 1000},
                color_scheme="dark" if options.dark else "light",
                device_scale_factor=1.5,
            ).new_page()
            page.goto(f"{options.url.rstrip('/')}/prompt?id={options.prompt_id}")
            last = page.locator(
                ".st-key-card-tokens svg.marks, .st-key-card-breakdown svg.marks, .st-key-state-unknown"
            ).last
            last.wait_for(timeout=30_000)
            page.locator(".st-key-card-waterfall svg.marks").wait_for()
            box = page.locator(".st-key-card-tokens, .st-key-card-waterfall").last.bounding_box()
            height = options.height or (round(box["y"] + box["height"]) + 24 if box else 1200)
            # The page lays out anew for the new height; the picture waits for the charts to follow.
            page.set_viewport_size({"width": options.width, "height": height})
            page.wait_for_function(
                "document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'"
            )
            page.wait_for_timeout(1_000)
            page.screenshot(path=options.out)
            browser.close()
    except NoChromium as error:
        print(error, file=sys.stderr)
        return 2
    except Error as error:
        print(
            f"no picture: {error.message.splitlines()[0]}: is the dashboard running at {options.url}?", file=sys.stderr
        )
        return 2
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
