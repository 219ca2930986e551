"""Which signals mean what."""

import os
import signal

import pytest
from kfp_jax.cancellation import Cancellation, cancel_on_signals


def acts(*signals: signal.Signals) -> int:
    """Returns how often a job is asked to stop by these signals to its launcher."""
    asked: list[int] = []
    with cancel_on_signals() as cancellation:
        for number in signals:
            os.kill(os.getpid(), number)
        with cancellation.carried_out_by(lambda: asked.append(1)):
            pass
    return len(asked)


@pytest.mark.parametrize(
    ("signals", "times"),
    [
        ((), 0),
        ((signal.SIGTERM,), 1),
        ((signal.SIGTERM, signal.SIGTERM, signal.SIGTERM), 1),
        ((signal.SIGINT,), 1),
        ((signal.SIGINT, signal.SIGINT), 2),
        ((signal.SIGTERM, signal.SIGINT), 2),
    ],
    ids=["none", "kill", "argo-repeats-itself", "ctrl-c", "ctrl-c-twice", "kill-then-ctrl-c"],
)
def test_signals(signals: tuple[signal.Signals, ...], times: int) -> None:
    assert acts(*signals) == times


def test_a_request_while_it_is_carried_out_is_carried_out_too() -> None:
    cancellation = Cancellation()
    asked: list[bool] = []
    with cancellation.carried_out_by(lambda: asked.append(cancellation.requested)):
        cancellation.request()
        cancellation.request()
    assert asked == [True, True]
