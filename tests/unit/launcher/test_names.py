import re

from hypothesis import given
from hypothesis import strategies as st
from kfp_jax.names import (
    MAX_JOB_NAME,
    attempt_of,
    job_name,
    label_value,
    next_attempt,
    slug,
)

DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")


@given(st.text(max_size=100), st.text(max_size=200), st.integers(1, 999))
def test_a_job_name_is_always_valid(prefix: str, identity: str, attempt: int) -> None:
    name = job_name(prefix, identity, attempt)
    assert DNS_LABEL.fullmatch(name)
    assert len(name) <= MAX_JOB_NAME


def test_the_same_task_has_the_same_name_and_another_task_another() -> None:
    assert job_name("train", "a", 1) == job_name("train", "a", 1)
    assert (
        len({job_name("train", "a", 1), job_name("train", "b", 1), job_name("train", "a", 2)}) == 3
    )


def test_the_prefix_stays_readable() -> None:
    assert job_name("My Training! (v2)", "id", 3).startswith("my-training-v2-")


@given(st.text(max_size=200))
def test_a_label_value_is_always_valid(text: str) -> None:
    value = label_value(text)
    assert LABEL_VALUE.fullmatch(value)
    assert len(value) <= 63


def test_free_text_as_label() -> None:
    assert label_value("1e-3/adam β") == "1e-3-adam"
    long = ["x" * 80 + end for end in "ab"]
    assert label_value(long[0]) != label_value(long[1])


def test_a_slug_starts_with_a_letter() -> None:
    assert slug("123", 20) == "job-123"
    assert slug("", 20) == "job"


@given(st.text(max_size=100), st.text(max_size=200), st.integers(1, 998))
def test_the_next_attempt_has_the_next_number(prefix: str, identity: str, attempt: int) -> None:
    name = job_name(prefix, identity, attempt)
    assert attempt_of(name) == attempt
    assert next_attempt(name) == job_name(prefix, identity, attempt + 1)


def test_a_name_that_is_not_ours_is_a_first_attempt() -> None:
    assert [attempt_of(name) for name in ("x12ab34", "my-job", "job-0", "job-1234")] == [1, 1, 1, 1]
