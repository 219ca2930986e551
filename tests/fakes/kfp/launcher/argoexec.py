"""Process 1 of a task's pod, as Argo's emissary: runs on the standard library alone.

What it starts has a process group of its own, to which it hands signals on. It looks every second
whether its child has ended, and leaves with it; with process 1 everything in the container ends.
"""

import os
import signal
import subprocess
import sys
import time


def main() -> int:
    """Returns the exit code of the child."""
    with subprocess.Popen(sys.argv[1:], process_group=0) as child:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda number, _: os.killpg(child.pid, number))
        while child.poll() is None:
            time.sleep(1)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    os._exit(main())
