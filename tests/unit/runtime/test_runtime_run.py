"""What a program sees, and how its end is told; no process is started."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kfp_jax_runtime import check, program
from kfp_jax_runtime.errors import BadInput, Diverged, Stopped
from kfp_jax_runtime.exits import ending
from kfp_jax_runtime.node import from_environment
from kfp_jax_runtime.report import Reporter
from kfp_jax_runtime.run import Run
from kfp_jax_runtime.signals import StopOnSigterm


@dataclasses.dataclass(frozen=True)
class Settings:
    epochs: int = 4


def make_run(lines: list[bytes], process: int = 0) -> Run:
    node = from_environment(
        {
            "KFP_JAX_OUTPUT_URI": "/out",
            "KFP_JAX_PARAMETERS": '{"epochs": 2.0}',
            "JAX_COORDINATOR_ADDRESS": "host:1",
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": str(process),
        }
    )
    return Run(node, {}, Reporter(process, 2, write=lines.append), stop=lambda: True)


def test_a_run_hands_on_what_the_node_knows() -> None:
    run = make_run([], process=1)
    assert run.parameters == {"epochs": 2.0}
    assert run.config(Settings) == Settings(epochs=2)
    assert (run.process_index, run.process_count) == (1, 2)
    assert (run.output_dir, run.checkpoint_dir) == (Path("/out"), "/out/checkpoints")
    assert (run.dataset_dir, run.job, run.attempt) == (None, "", 1)
    assert run.stop_requested


def test_only_process_0_reports() -> None:
    first: list[bytes] = []
    second: list[bytes] = []
    for process, lines in enumerate((first, second)):
        run = make_run(lines, process)
        run.report(1, loss=0.5)
        run.progress(1, 10)
    assert (len(first), len(second)) == (2, 0)


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_reported_and_ends_every_process(
    process: int, loss: float
) -> None:
    lines: list[bytes] = []
    with pytest.raises(Diverged, match=f"the loss is {loss} at step 7") as raised:
        make_run(lines, process).report(7, loss=loss, rate=1)
    assert raised.value.step == 7
    assert len(lines) == (1 if process == 0 else 0)


def test_another_metric_may_be_nan() -> None:
    make_run([]).report(7, loss=1.0, accuracy=float("nan"))


def test_run_wait_does_not_open_checkpoints_that_nobody_used() -> None:
    run = make_run([])
    run.wait()
    assert "checkpoints" not in vars(run)


@pytest.mark.parametrize(
    ("error", "code", "reason", "message"),
    [
        (ValueError("bad\nthing"), 1, "exception", "ValueError: bad\nthing"),
        (KeyError(), 1, "exception", "KeyError"),
        (BadInput("no such field"), 64, "bad-input", "no such field"),
        (Stopped(70), 75, "stopped", "stopped on request at step 70"),
        (SystemExit(3), 3, "exit", "the program called sys.exit(3)"),
        (SystemExit(None), 0, "exit", "the program called sys.exit()"),
        (SystemExit(0), 0, "exit", "the program called sys.exit(0)"),
        (SystemExit(256), 1, "exit", "the program called sys.exit(256)"),
        (SystemExit(-1), 255, "exit", "the program called sys.exit(-1)"),
        (SystemExit("why"), 1, "exit", "the program called sys.exit: why"),
        (KeyboardInterrupt(), 130, "exit", "the program was interrupted"),
    ],
    ids=repr,
)
def test_each_end_has_its_code_and_reason(
    error: BaseException, code: int, reason: str, message: str
) -> None:
    end = ending(error)
    assert (end.code, end.reason, end.message) == (code, reason, message)


def test_a_diverged_loss_is_told_with_its_step() -> None:
    end = ending(Diverged(12, float("nan")))
    assert (end.code, end.reason, end.step) == (65, "diverged", 12)


def test_only_an_exception_has_a_traceback_and_it_starts_at_the_program() -> None:
    def fails() -> None:
        raise ValueError("inner")

    with pytest.raises(ValueError, match="inner") as raised:
        fails()
    assert "in fails" in ending(raised.value).traceback
    assert "in fails" not in ending(raised.value, hide=frozenset({__file__})).traceback
    assert ending(Stopped(1)).traceback == ""


def module(**names: Any) -> str:
    """Registers a module with these names, and returns its own."""
    made = ModuleType("made_for_test")
    vars(made).update(names)
    for value in names.values():
        if callable(value):
            value.__module__ = made.__name__
    sys.modules[made.__name__] = made
    return made.__name__


def takes_run(run: Run) -> Mapping[str, object]:
    return {"epochs": run.parameters["epochs"]}


def takes_config(run: Run, config: Settings) -> Mapping[str, object]:
    return {"epochs": config.epochs}


def takes_nothing() -> None: ...


def takes_more(run: Run, config: Settings, other: int) -> None: ...


def takes_untyped(run: Run, config) -> None: ...  # type: ignore[no-untyped-def]  # on purpose


def takes_default(run: Run, verbose: bool = False) -> None: ...


def returns_text(run: Run) -> str:
    return "done"


@pytest.mark.parametrize("function", [takes_run, takes_config])
def test_a_program_runs_with_a_run_and_if_it_asks_its_config(function: Any) -> None:
    ready = program.load(module(main=function), {"epochs": 2.0})
    assert ready(make_run([])) == {"epochs": 2}


def test_a_program_may_return_nothing_but_not_just_anything() -> None:
    name = module(main=takes_default, text=returns_text)
    assert program.load(name, {})(make_run([])) == {}
    with pytest.raises(TypeError, match="made_for_test:text returned a str; return a mapping"):
        program.load(f"{name}:text", {})(make_run([]))


@pytest.mark.parametrize("function", [takes_nothing, takes_more, takes_untyped])
def test_a_function_that_cannot_be_called_with_a_run_is_refused(function: Any) -> None:
    with pytest.raises(BadInput, match=r"must take \(run\), or \(run, config\)"):
        program.load(module(main=function), {})


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("no_such_module_x", "there is no module 'no_such_module_x'"),
        ("json.no_such", "there is no module 'json.no_such'"),
        ("train.py", "names a file"),
        ("./train", "names a file"),
        ("a-b", "must be `module` or `module:function`"),
        ("", "must be `module` or `module:function`"),
        (":main", "must be `module` or `module:function`"),
        ("json:nope", "module 'json' has no function 'nope'; its functions: detect_encoding, dump"),
        ("json:__name__", "has no function '__name__'"),
    ],
)
def test_an_unknown_program_is_refused_in_one_sentence(target: str, says: str) -> None:
    assert says in check.check([target], {})


def test_check_is_silent_when_all_is_well_and_names_a_bad_parameter() -> None:
    name = module(main=takes_config)
    assert check.check([name], {"KFP_JAX_PARAMETERS": '{"epochs": 3}'}) == ""
    assert "parameter 'epochs' must be a whole number" in check.check(
        [name], {"KFP_JAX_PARAMETERS": '{"epochs": "x"}'}
    )
    assert "KFP_JAX_PARAMETERS is not JSON" in check.check([name], {"KFP_JAX_PARAMETERS": "{"})
    assert check.check([], {}).startswith("usage:")


def test_check_says_where_a_module_fails_to_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_program.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sentence = check.check(["broken_program"], {})
    assert "cannot be imported: ModuleNotFoundError: No module named 'no_such_dep" in sentence
    assert sentence.endswith("broken_program.py, line 1)")


def test_sigterm_ends_a_process_until_it_asks_and_is_remembered_after() -> None:
    left: list[str] = []
    stop = StopOnSigterm(leave=lambda: left.append("left"))
    stop.notice()
    assert left == ["left"]
    stop = StopOnSigterm(leave=lambda: left.append("again"))
    assert not stop()
    stop.notice()
    stop.notice()
    assert stop()
    assert left == ["left"]
