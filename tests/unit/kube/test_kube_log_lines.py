from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kfp_jax.kube.log_lines import MAX_LINE_BYTES, LogCursor

START = int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * 10**9


def stamped(moment: int, text: str) -> bytes:
    second = datetime.fromtimestamp(moment // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{second}.{moment % 10**9:09d}Z {text}\n".encode()


def read(lines: list[tuple[int, bytes]], since: str) -> bytes:
    """Returns a log as the API gives it: whole lines from a whole second on, in their order."""
    first = int(datetime.fromisoformat(since).timestamp()) * 10**9 if since else 0
    return b"".join(line for moment, line in lines if moment >= first)


def feed(*chunks: bytes) -> list[str]:
    cursor = LogCursor()
    return [text for chunk in chunks for text in cursor.feed(chunk)] + cursor.end()


def test_timestamps_come_off_and_lines_stay_as_they_are() -> None:
    lines = ["42", '{"kind":"Pod"}', "", "  two  spaces ", "日本 €"]
    log = b"".join(stamped(START, line) for line in lines)
    assert feed(log) == lines
    assert feed(*[log[i : i + 1] for i in range(len(log))]) == lines


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.1Z",
        "2026-01-02T03:04:05.123456789Z",
        "2026-01-02T12:04:05.123456789+09:00",
        "2026-01-01T22:04:05.123-05:00",
    ],
)
def test_forms_of_a_moment(stamp: str) -> None:
    cursor = LogCursor()
    assert cursor.feed(f"{stamp} x\n".encode()) == ["x"]
    assert cursor.since == "2026-01-02T03:04:04Z"


def test_the_kubelet_s_own_words_are_no_line_of_the_process() -> None:
    assert feed(b"unable to retrieve container logs for containerd://0123\n") == []
    assert feed(b"failed to open log file\n", stamped(START, "x")) == ["x"]


def test_a_last_line_without_newline() -> None:
    assert feed(stamped(START, "one"), stamped(START, "end")[:-1]) == ["one", "end"]


def test_a_progress_bar_leaves_its_last_state() -> None:
    assert feed(stamped(START, "10%\r20%\r100%"), stamped(START, "next\r")) == ["100%", "next"]


def test_a_minute_of_carriage_returns_is_bounded() -> None:
    cursor = LogCursor()
    cursor.feed(stamped(START, "")[:-1])
    for number in range(30_000):
        cursor.feed(b"%d of 30000, a progress bar of some width\r" % number)
    assert cursor.feed(b"done\n") == ["done"]


def test_a_line_of_megabytes_comes_in_pieces_and_none_twice() -> None:
    log = stamped(START, "x" * 5_000_000) + stamped(START + 1, "short")
    cursor = LogCursor()
    texts: list[str] = []
    for cut in (700_000, 2_500_000, 4_999_999, len(log)):
        cursor.resume()
        for begin in range(0, cut, 65_536):
            texts += cursor.feed(log[begin : min(begin + 65_536, cut)])
    assert texts[-1] == "short"
    assert "".join(texts[:-1]) == "x" * 5_000_000
    assert max(map(len, texts)) <= MAX_LINE_BYTES
    cursor.resume()
    assert cursor.feed(log) == []
    assert feed(log) == texts


def test_half_a_line_at_a_drop_comes_whole() -> None:
    line = stamped(START, "a whole line")
    cursor = LogCursor()
    assert cursor.feed(line[:35]) == []
    cursor.resume()
    assert cursor.feed(line) == ["a whole line"]


def test_half_a_line_whose_log_is_gone_comes_as_it_was() -> None:
    line = stamped(START, "half a line")
    cursor = LogCursor()
    assert cursor.feed(line[:-1]) == []
    cursor.resume()
    cursor.resume()
    assert cursor.end() == ["half a line"]
    assert cursor.end() == []
    cursor.resume()
    assert cursor.feed(line) == []


def test_equal_lines_of_one_moment_all_come() -> None:
    log = [(START, stamped(START, "same"))] * 5
    cursor = LogCursor()
    texts = cursor.feed(read(log[:2], ""))
    cursor.resume()
    texts += cursor.feed(read(log, cursor.since))
    assert texts == ["same"] * 5


def test_a_log_that_was_rotated_away_is_no_reason_to_skip() -> None:
    old = [(START + i, stamped(START + i, f"old {i}")) for i in range(10)]
    new = [(START + 10 + i, stamped(START + 10 + i, f"new {i}")) for i in range(10)]
    cursor = LogCursor()
    texts = cursor.feed(read(old, ""))
    cursor.resume()
    texts += cursor.feed(read(new, cursor.since))
    assert texts == [f"old {i}" for i in range(10)] + [f"new {i}" for i in range(10)]


def test_far_more_lines_of_one_second_than_are_remembered() -> None:
    log = [(START + i, stamped(START + i, f"line {i}")) for i in range(5_000)]
    cursor = LogCursor()
    texts = cursor.feed(read(log[:3_000], ""))
    cursor.resume()
    texts += cursor.feed(read(log, cursor.since))
    assert texts == [f"line {i}" for i in range(5_000)]


@settings(max_examples=60)
@given(
    # Steps between moments: none, some nanoseconds, a second and more, or a little back.
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 700, 400_000_000, 1_000_000_000, 3_000_000_000, -900]),
            st.text(alphabet="ab \r", max_size=4),
        ),
        max_size=60,
    ),
    st.data(),
)
def test_any_cuts_neither_lose_nor_double_a_line(
    steps: list[tuple[int, str]], data: st.DataObject
) -> None:
    moment, log = START, []
    for step, text in steps:
        moment += step
        log.append((moment, stamped(moment, text)))
    cursor = LogCursor()
    texts: list[str] = []
    written = 0
    for _ in range(data.draw(st.integers(0, 5))):
        # More has been written; the connection breaks somewhere in what is read.
        written = data.draw(st.integers(written, len(log)))
        cursor.resume()
        body = read(log[:written], cursor.since)
        cut = data.draw(st.integers(0, len(body)))
        middle = data.draw(st.integers(0, cut))
        texts += cursor.feed(body[:middle]) + cursor.feed(body[middle:cut])
    cursor.resume()
    texts += cursor.feed(read(log, cursor.since)) + cursor.end()
    assert texts == [text.rstrip("\r").rpartition("\r")[2] for _, text in steps]
