from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from kfp_jax.lines import MAX_LINE_BYTES, LineSplitter, Tail


def split(*chunks: bytes) -> list[str]:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.end()


def test_lines_across_chunks() -> None:
    assert split(b"a\nb", b"c\n", b"\n42\nend") == ["a", "bc", "", "42", "end"]


def test_a_progress_bar_leaves_its_last_state() -> None:
    assert split(b"10%\r20%\r", b"100%\nnext\r\n") == ["100%", "next"]


def test_a_minute_of_carriage_returns_is_bounded() -> None:
    splitter = LineSplitter()
    for number in range(200_000):
        splitter.feed(b"%d of 200000, a progress bar of some width\r" % number)
    assert splitter.pending < 100
    assert splitter.feed(b"done\n")[-1] == "done"


def test_a_line_of_megabytes_comes_in_pieces() -> None:
    lines = split(*[b"x" * 100_000] * 50, b"\nshort\n")
    assert lines[-1] == "short"
    assert sum(len(line) for line in lines[:-1]) == 5_000_000
    assert max(len(line) for line in lines) <= MAX_LINE_BYTES + 100_000


def test_bytes_that_are_no_utf8() -> None:
    assert split(b"caf\xe9\n", "日本 €\n".encode()) == ["caf\ufffd", "日本 €"]


@given(
    st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n", codec="utf-8"))), st.data()
)
def test_any_cut_gives_the_same_lines(texts: list[str], data: st.DataObject) -> None:
    raw = "".join(f"{text}\n" for text in texts).encode()
    cut = data.draw(st.integers(0, len(raw)))
    assert split(raw[:cut], raw[cut:]) == texts


def test_a_tail_follows_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    with Tail(path) as tail:
        assert tail.read() == ["one"]
        assert tail.read() is None
        with path.open("ab") as log:
            log.write(b"o\nrest")
        assert tail.read() == ["two"]
        assert tail.end() == ["rest"]
