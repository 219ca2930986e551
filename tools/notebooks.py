"""Executes the notebooks, each in its own empty folder with this Python; `make notebooks` runs it.

The executed copies, with their output, are written to `build/notebooks`; the notebooks themselves
stay as they are. Ends with 1 at the first cell that raises.
"""

import shutil
import sys
import time
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

ROOT = Path(__file__).parents[1]
EXECUTED = ROOT / "build" / "notebooks"
CELL_SECONDS = 600


def execute(source: Path) -> None:
    """Executes one notebook and writes the executed copy, also when a cell fails."""
    folder = EXECUTED / source.stem
    folder.mkdir(parents=True)
    notebook = nbformat.read(source, as_version=4)
    # Without kernel folders "python3" is this very Python, whatever a user has registered.
    kernel = AsyncKernelManager(
        kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[])
    )
    client = NotebookClient(
        notebook, km=kernel, timeout=CELL_SECONDS, resources={"metadata": {"path": str(folder)}}
    )
    try:
        client.execute()
    finally:
        nbformat.write(notebook, EXECUTED / source.name)


def main() -> int:
    """Executes all notebooks in the order of their names."""
    shutil.rmtree(EXECUTED, ignore_errors=True)
    sources = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for source in sources:
        begun = time.monotonic()
        try:
            execute(source)
        except (CellExecutionError, CellTimeoutError) as error:
            print(f"{source.name}: {error}", file=sys.stderr)
            return 1
        print(f"{source.name}: executed in {time.monotonic() - begun:.0f} s")
    print(f"{len(sources)} notebooks executed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
