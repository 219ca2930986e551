from typing import Any

import pytest
from kfp_jax.errors import SpecError
from kfp_jax.sweep import listed


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], ["list of trials is []", "at least one"]),
        ({"lr": 1}, ["list of trials"]),
        ([{"lr": 0.1}, {"bs": 64}], ["Trial 1", "no 'lr'"]),
        ([{"lr": 0.1}, {"lr": 0.1, "bs": 64}], ["Trial 1", "'bs'", "lr"]),
        ([{"lr": 0.1}, 3], ["Trial 1", "3"]),
        ([{"lr": float("nan")}], ["Trial 0", "JSON"]),
    ],
    ids=str,
)
def test_a_list_that_no_loop_could_run_is_refused(items: Any, words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        listed(items)
    assert [word for word in words if word not in str(error.value)] == []


def test_a_good_list_is_copied() -> None:
    items = [{"lr": 0.1, "sizes": [1]}, {"lr": 0.2, "sizes": [2]}]
    copy = listed(items)
    copy[0]["sizes"].append(3)
    assert items[0] == {"lr": 0.1, "sizes": [1]}
    assert listed(tuple(items)) == items
