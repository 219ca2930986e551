"""Runs the commands that the documentation shows; `make docs-check` runs it.

The rule: every block fenced as ```bash in README.md, CONTRIBUTING.md and docs/*.md is run, in the
order of the page, as one bash script that ends at its first failing command, from the root of the
repository with .venv/bin first on the PATH. Blocks fenced otherwise (```console, ```text, ...) are
not run. Commands may write to build/ and nowhere else.

The environment variable ALREADY_RUN holds commands, one a line, that were run just before: CI runs
`make demo` and `make test` as stages of their own. A line of a block that is literally one of them
is left out, and that is said.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK_SECONDS = 900
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of commands: where it starts and its lines."""

    page: str
    line: int
    commands: tuple[str, ...]

    def without(self, already_run: Collection[str]) -> "Block":
        """Returns the block without the lines that are in `already_run`."""
        rest = tuple(line for line in self.commands if line.strip() not in already_run)
        return Block(self.page, self.line, rest)


def bash_blocks(page: str, text: str) -> Iterator[Block]:
    """Yields the ```bash blocks of a Markdown page.

    Raises:
        ValueError: A fence is never closed.
    """
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened, lines = (number, fence["language"]), []
        elif fence and not fence["language"]:
            if opened[1] == "bash":
                yield Block(page, opened[0], tuple(lines))
            opened = None
        else:
            lines.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: the block that starts here is never closed")


def run(block: Block) -> int:
    """Runs a block, its output going where ours goes; returns the exit code of bash.

    The block leads its own process group, and what it left running is ended with it.
    """
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", "\n".join(block.commands)],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(timeout=BLOCK_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"{block.page}:{block.line}: not done after {BLOCK_SECONDS} s", file=sys.stderr)
        return 124
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    """Runs all blocks of all pages; stops at the first that fails."""
    already_run = {line.strip() for line in os.environ.get("ALREADY_RUN", "").splitlines()} - {""}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    done = 0
    for page in pages:
        for block in bash_blocks(str(page.relative_to(ROOT)), page.read_text()):
            where = f"{block.page}:{block.line}"
            for line in block.commands:
                if line.strip() in already_run:
                    print(f"{where}: already run: {line.strip()}", flush=True)
            rest = block.without(already_run)
            if not any(line.strip() for line in rest.commands):
                continue
            print(f"{where}: running", *rest.commands, sep="\n    ", flush=True)
            begun = time.monotonic()
            if code := run(rest):
                print(f"{where}: failed with exit code {code}", file=sys.stderr)
                return 1
            print(f"{where}: passed in {time.monotonic() - begun:.0f} s", flush=True)
            done += 1
    print(f"{done} blocks of commands passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
