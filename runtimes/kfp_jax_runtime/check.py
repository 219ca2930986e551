"""Says, before a job is started, whether its program and parameters are good.

    python -m kfp_jax_runtime.check MODULE[:FUNCTION]

Reads KFP_JAX_PARAMETERS. Exits 0 in silence, or 64 after one sentence on stderr. It imports the
program but joins nobody and runs nothing.
"""

import os
import sys
import traceback
from collections.abc import Mapping, Sequence

from kfp_jax_runtime import node, program
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.exits import BAD_INPUT, leave_at_once
from kfp_jax_runtime.report import one_line


def check(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Returns what is wrong in one sentence, or "" when nothing is."""
    if len(arguments) != 1:
        return "usage: python -m kfp_jax_runtime.check MODULE[:FUNCTION]"
    try:
        program.load(arguments[0], node.parameters(environ))
    except BadInput as error:
        return one_line(str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything
        return one_line(
            f"program {arguments[0]!r} cannot be imported: {type(error).__name__}: {error}"
            f"{_place(error)}"
        )
    return ""


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def main() -> None:
    """Runs the check on the command line's arguments."""
    sentence = check(sys.argv[1:], os.environ)
    if sentence:
        sys.stderr.write(f"{sentence}\n")
    leave_at_once(BAD_INPUT if sentence else 0)


if __name__ == "__main__":
    main()
