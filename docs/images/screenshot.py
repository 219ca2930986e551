"""Takes a picture of an HTML report with headless Chromium, for the README and the guides."""

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def main() -> None:
    """Reads the arguments, and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="the HTML file")
    parser.add_argument("output", type=Path, help="the PNG file to write")
    parser.add_argument("--width", type=int, default=1200, help="of the window, in pixels")
    parser.add_argument("--height", type=int, default=0, help="in pixels; 0 takes the whole page")
    parser.add_argument("--dark", action="store_true", help="use the dark colour scheme")
    arguments = parser.parse_args()
    if not arguments.report.is_file():
        parser.error(f"there is no file {arguments.report}")
    take(
        arguments.report,
        arguments.output,
        width=arguments.width,
        height=arguments.height,
        dark=arguments.dark,
    )


def take(report: Path, output: Path, *, width: int, height: int, dark: bool) -> None:
    """Writes a picture of a report, `height` pixels of it or (0) all."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(
            viewport={"width": width, "height": height or 800},
            color_scheme="dark" if dark else "light",
        )
        page.goto(report.resolve().as_uri())
        page.screenshot(path=output, full_page=height == 0)
        browser.close()


if __name__ == "__main__":
    main()
