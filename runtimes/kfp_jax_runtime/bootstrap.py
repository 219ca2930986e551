"""The first process of a node: joins the others and runs the user's program.

    python -m kfp_jax_runtime.bootstrap MODULE[:FUNCTION]

The order matters. The program is imported and its parameters are checked before this process
joins the others, so that a typing error costs a second, not the wait for all nodes.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from kfp_jax_runtime import compile_cache, devices, exits, model_folder, node, program, stored
from kfp_jax_runtime.errors import BadInput, Stopped
from kfp_jax_runtime.report import Reporter, installed_versions, termination_log
from kfp_jax_runtime.run import Run
from kfp_jax_runtime.signals import SigtermListener, StopOnSigterm

# Its module takes a while to import, and few clusters have a status server.
STATUS_URL = "KUBEFLOW_TRAINER_SERVER_URL"
_OWN_FRAMES = frozenset(
    {
        __file__,
        program.__file__,
        importlib.__file__,
        "<frozen importlib._bootstrap>",
        "<frozen importlib._bootstrap_external>",
    }
)


def main() -> None:
    """Runs the program named on the command line, and ends the process as the contract says."""
    code = run_to_its_end(sys.argv[1:], os.environ, SigtermListener())
    if code:
        exits.leave_at_once(code)


def run_to_its_end(
    arguments: Sequence[str], environ: MutableMapping[str, str], listener: SigtermListener
) -> int:
    """Runs a program as the node that `environ` describes and returns the exit code it has earned.

    All that the program raises is reported and costs no more than its job: whoever runs several
    in one process can go on.

    Args:
        arguments: the program, as `module` or `module:function`.
        environ: of the node; this process's own.
        listener: of this process.
    """
    reporter = _reporter(environ)
    sigterm = StopOnSigterm(leave=lambda: _stop_at_once(reporter))
    listener.tell(sigterm)
    try:
        _bootstrap(arguments, environ, reporter, sigterm)
    except BaseException as error:  # noqa: BLE001 - the very top: every end gets its report and code
        end = exits.ending(error, hide=_OWN_FRAMES)
        # The code matters more than what else could be said.
        with contextlib.suppress(Exception):
            _say(end, reporter)
        return end.code
    return 0


def _bootstrap(
    arguments: Sequence[str],
    environ: MutableMapping[str, str],
    reporter: Reporter,
    sigterm: StopOnSigterm,
) -> None:
    if len(arguments) != 1:
        raise BadInput("usage: python -m kfp_jax_runtime.bootstrap MODULE[:FUNCTION]")
    here = node.from_environment(environ)
    if complaint := compile_cache.set_up(environ):
        sys.stderr.write(f"kfp-jax: {complaint}\n")
    ready = program.load(arguments[0], here.parameters)
    parameters = ready.effective(here.parameters)
    with stored.settled(here) as here:
        _make_output(here)
        _join_and_run(here, ready, parameters, environ, reporter, sigterm)


def _join_and_run(
    here: node.Node,
    ready: program.Program,
    parameters: Mapping[str, object],
    environ: Mapping[str, str],
    reporter: Reporter,
    sigterm: StopOnSigterm,
) -> None:
    last_post = _show_status(here, environ, reporter)
    if not here.distributed:
        devices.check(environ)
        reporter.joined(parameters)
        _run(ready, Run(here, parameters, reporter, sigterm), reporter, here)
        last_post()
        return
    # Imported here, because a single process may have no need of JAX at all.
    from kfp_jax_runtime import distributed

    reporter.waiting()
    distributed.join(here)
    devices.check(environ)
    reporter.joined(parameters)
    _run(ready, Run(here, parameters, reporter, distributed.SyncPoint()), reporter, here)
    distributed.leave()
    last_post()


def _run(ready: program.Program, run: Run, reporter: Reporter, here: node.Node) -> None:
    try:
        metrics = ready(run)
    except SystemExit as error:
        if exits.ending(error).code != 0:
            raise
        metrics = {}
    except Stopped:
        run.wait()
        stored.send_results(here)
        raise
    except Exception:
        run.wait_briefly()
        raise
    run.wait()
    stored.send_results(here)
    if run.process_index == 0:
        exported = model_folder.NAME if model_folder.holds_model(run.model_dir) else None
        reporter.result(metrics, exported, installed_versions())


def _show_status(
    here: node.Node, environ: Mapping[str, str], reporter: Reporter
) -> Callable[[], None]:
    """Has process 0 show its reports in the TrainJob; returns what waits for the last of them."""
    if here.process_index != 0 or not environ.get(STATUS_URL):
        return lambda: None
    from kfp_jax_runtime import status_server

    poster = status_server.poster(environ)
    if poster is None:
        return lambda: None
    reporter.also = poster.take
    return poster.close


def _make_output(here: node.Node) -> None:
    try:
        here.output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"the output folder {here.output_dir} cannot be created: {error.strerror}; "
            "choose one that this node can write to"
        ) from error


def _say(end: exits.Ending, reporter: Reporter) -> None:
    # Whoever read our output may be gone, which must not keep the rest from being said.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(end.traceback or f"kfp-jax: {end.message}\n")
    with contextlib.suppress(OSError):
        reporter.error(end.reason, end.message, end.traceback, end.step)
    if end.together and "jax" in sys.modules:
        from kfp_jax_runtime import distributed

        distributed.leave_together()


def _stop_at_once(reporter: Reporter) -> None:
    with contextlib.suppress(OSError):
        reporter.error("stopped", "stopped by SIGTERM before it asked whether to stop")
    exits.leave_at_once(exits.STOPPED)


def _reporter(environ: Mapping[str, str]) -> Reporter:
    """Returns a reporter even for an environment that is about to be refused."""
    index = environ.get("JAX_PROCESS_ID", "")
    count = environ.get("JAX_NUM_PROCESSES", "")
    return Reporter(
        process=int(index) if index.isdecimal() else 0,
        processes=int(count) if count.isdecimal() else 1,
        termination_log=termination_log(environ),
    )


if __name__ == "__main__":
    main()
