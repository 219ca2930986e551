from collections.abc import Sequence
from pathlib import Path

import pytest
from kfp_jax.backends.local_job import LogFile
from kfp_jax.backends.turns import Turns, WaitingAttempt
from kfp_jax.status import ProcessStatus

A, B, C = object(), object(), object()


def test_whoever_asked_first_is_first_even_where_a_later_one_would_fit() -> None:
    turns = Turns(2)
    for who in (A, B, C):
        turns.join(who)
    assert turns.take(B, 1, "") == ()
    assert turns.take(A, 1, "") == [0]
    assert turns.take(B, 2, "") == ()
    assert turns.take(C, 1, "") == ()
    turns.give_back([0])
    assert sorted(turns.take(B, 2, "")) == [0, 1]
    assert turns.take(C, 1, "") == ()


def test_who_leaves_holds_nobody_up() -> None:
    turns = Turns(1)
    turns.join(A)
    turns.join(B)
    turns.leave(A)
    assert turns.take(B, 1, "") == [0]


def test_a_place_that_nobody_waits_for_can_be_had_at_once() -> None:
    turns = Turns(1)
    turns.join(A)
    assert turns.take_free("") is None
    turns.leave(A)
    assert turns.take_free("") == 0
    assert turns.take_free("") is None


def test_a_warm_place_goes_to_whom_it_is_warm_for_and_a_cold_one_to_others() -> None:
    turns = Turns(3)
    turns.note(0, "x")
    turns.note(2, "y")
    assert turns.take_free("y") == 2
    assert turns.take_free("y") == 1
    assert turns.take_free("y") == 0


class Started:
    """An attempt that notes what is asked of it."""

    failed_at = None

    def __init__(self) -> None:
        self.asked: list[str] = []

    def waits(self) -> bool:
        return False

    def poll(self, now: float) -> Sequence[ProcessStatus]:
        return [ProcessStatus(0)]

    def terminate(self) -> None:
        self.asked.append("terminate")

    def close(self) -> None:
        self.asked.append("close")


@pytest.fixture
def files(tmp_path: Path) -> list[LogFile]:
    return [LogFile(1, 0, tmp_path / "log")]


def test_an_attempt_waits_until_a_place_is_free(files: list[LogFile]) -> None:
    turns, started = Turns(1), Started()
    assert turns.take_free("") == 0
    attempt = WaitingAttempt(turns, 1, "", lambda places: started, files)
    assert attempt.waits()
    assert [item.alive for item in attempt.poll(0.0)] == [False]
    assert files[0].path.read_text() == ""
    attempt.terminate()
    turns.give_back([0])
    assert not attempt.waits()
    assert [item.alive for item in attempt.poll(0.0)] == [True]
    attempt.terminate()
    attempt.close()
    attempt.close()
    assert started.asked == ["terminate", "close"]
    assert turns.take_free("") == 0


def test_an_attempt_that_is_closed_while_it_waits_never_starts(files: list[LogFile]) -> None:
    turns, started = Turns(1), Started()
    assert turns.take_free("") == 0
    attempt = WaitingAttempt(turns, 1, "", lambda places: started, files)
    attempt.close()
    turns.give_back([0])
    assert not attempt.waits()
    assert turns.take_free("") == 0


def test_an_attempt_that_cannot_start_gives_its_place_back(files: list[LogFile]) -> None:
    def fail(places: Sequence[int]) -> Started:
        raise OSError("no more processes")

    turns = Turns(1)
    with pytest.raises(OSError, match="no more"):
        WaitingAttempt(turns, 1, "", fail, files)
    assert turns.take_free("") == 0
