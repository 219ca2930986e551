"""How a process ends: the exit codes that the launcher understands, and the way out."""

import contextlib
import os
import sys
import traceback
from dataclasses import dataclass
from typing import NoReturn

from kfp_jax_runtime.errors import BadInput, Diverged, Stopped

FAILED = 1
BAD_INPUT = 64
DIVERGED = 65
"""Like bad input, the same again the next time: no restart helps."""
STOPPED = 75
"""Not 0, which would count as done; 75 is "try again" in sysexits.h."""
INTERRUPTED = 130


@dataclass(frozen=True)
class Ending:
    """What an exception means for the exit code and the error report."""

    code: int
    reason: str
    message: str
    traceback: str = ""
    step: int | None = None
    together: bool = False
    """All processes end like this at the same step, so they can take leave of one another."""


def ending(error: BaseException, *, hide: frozenset[str] = frozenset()) -> Ending:
    """Returns what `error`, which ended a program, means.

    Args:
        error: what the program raised.
        hide: file names of the frames above the program, which its author need not see.
    """
    message = str(error)
    match error:
        case Stopped():
            return Ending(STOPPED, "stopped", message, step=error.step, together=True)
        case Diverged():
            return Ending(DIVERGED, "diverged", message, step=error.step, together=True)
        case BadInput():
            return Ending(BAD_INPUT, "bad-input", message)
        case KeyboardInterrupt():
            return Ending(INTERRUPTED, "exit", "the program was interrupted")
        case SystemExit():
            return _system_exit(error)
        case _:
            name = type(error).__qualname__
            text = f"{name}: {message}" if message else name
            return Ending(FAILED, "exception", text, _traceback(error, hide))


def _system_exit(error: SystemExit) -> Ending:
    if isinstance(error.code, int):
        # The system keeps eight bits; 256 must not come out as success.
        code = error.code & 0xFF or (FAILED if error.code else 0)
        return Ending(code, "exit", f"the program called sys.exit({error.code})")
    if error.code is None:
        return Ending(0, "exit", "the program called sys.exit()")
    return Ending(FAILED, "exit", f"the program called sys.exit: {error.code}")


def _traceback(error: BaseException, hide: frozenset[str]) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in hide:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def leave_at_once(code: int) -> NoReturn:
    """Ends the process without asking the others.

    The interpreter's own exit runs JAX's, which waits for all processes: after a failure until
    their heartbeats expire, and then with another exit code than this.
    """
    for stream in (sys.stdout, sys.stderr):
        # A reader that has gone, or a full disk, must not keep a failed process alive.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
