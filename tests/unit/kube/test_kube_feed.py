import itertools
import threading
import time
from collections.abc import Iterator

import pytest
from fakes.clock import ManualClock
from kfp_jax.kube.feed import Feed
from kfp_jax.kube.stop import Stop


def test_items_of_all_sources() -> None:
    with Feed[int](Stop()) as feed:
        feed.add([1, 2, 3], "a")
        feed.add([4, 5, 6], "b")
        items = [feed.take(5) for _ in range(6)]
        assert sorted(item for item in items if item) == [1, 2, 3, 4, 5, 6]
        assert [item for item in items if item and item < 4] == [1, 2, 3]
        assert feed.take(0.01) is None


def test_what_a_source_raises_is_raised_where_items_are_taken() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise LookupError("x")

    with Feed[int](Stop()) as feed:
        feed.add(source(), "a")
        assert feed.take(5) == 1
        with pytest.raises(LookupError):
            feed.take(5)


def test_sources_wait_for_the_taker_and_end_with_the_block() -> None:
    taken = []

    def source() -> Iterator[int]:
        for number in itertools.count():
            taken.append(number)
            yield number

    with Feed[int](Stop()) as feed:
        feed.add(source(), "endless")
        feed.take(5)
        time.sleep(0.05)
        assert len(taken) < 20
    time.sleep(0.3)
    assert "endless" not in [thread.name for thread in threading.enumerate()]


def test_stop_wakes_the_taker() -> None:
    stop = Stop()
    with Feed[int](stop) as feed:
        threading.Timer(0.05, stop.set).start()
        begun = time.monotonic()
        assert feed.take(10) is None
        assert time.monotonic() - begun < 1


def test_stop_calls_each_action_once_also_late() -> None:
    stop, called = Stop(), []
    with stop.calls(lambda: called.append("left")):
        pass
    with stop.calls(lambda: called.append("now")):
        stop.set()
        stop.set()
    with stop.calls(lambda: called.append("late")):
        pass
    assert called == ["now", "late"]


def test_a_sleep_ends_early() -> None:
    clock, stop = ManualClock(), Stop()
    stop.sleep(clock, 5)
    assert clock.time == pytest.approx(1005)
    stop.sleep(clock, 5, until=lambda: clock.time > 1006)
    assert clock.time < 1007
    stop.set()
    stop.sleep(clock, 5)
    assert clock.time < 1007
