"""What a pipeline's loop over trials carries: items in, results out, and what they come to."""

import json
from typing import Any

import pytest
from kfp_jax.errors import SpecError
from kfp_jax.sweep import (
    Direction,
    Sampler,
    Space,
    Study,
    Trial,
    TrialState,
    choice,
    loguniform,
    ranked,
    suggest,
    uniform,
)
from kfp_jax.sweep.end import failure_of
from kfp_jax.sweep.halving import survivors
from kfp_jax.sweep.loop import (
    MAX_LOOP_TRIALS,
    after_round,
    loop_end,
    loop_item,
    loop_items,
    read_item,
    read_results,
    thinned,
    to_result,
    without,
)

ARGUMENT_BYTES = 128 * 1024
SPACE = {"learning_rate": loguniform(1e-4, 0.1), "batch_size": choice(32, 64)}


def study(space: dict[str, Any] = SPACE, **changes: Any) -> Study:
    settings = {"sampler": Sampler.RANDOM, "max_trials": 5} | changes
    return Study(space=Space.from_json(space), **settings)


def complete(number: int, score: float, **changes: Any) -> Trial:
    return Trial(number, {"x": number}, TrialState.COMPLETE, score, seconds=2.0, **changes)


def failed(number: int, reason: str = "exception") -> Trial:
    return Trial(
        number, {"x": number}, TrialState.FAILED, reason=reason, message=f"Job {number} fell over."
    )


@pytest.mark.parametrize("sampler", [Sampler.RANDOM, Sampler.QUASIRANDOM])
def test_the_items_are_the_trials_that_a_sweep_in_one_step_makes(sampler: Sampler) -> None:
    same = study(sampler=sampler, seed=7)
    made: list[Trial] = []
    for number in range(5):
        parameters = suggest(same, made, number)
        assert parameters is not None
        made.append(complete(number, 0.5))
        made[-1] = Trial(number, parameters, TrialState.COMPLETE, 0.5)
    assert loop_items(same) == [loop_item(trial) for trial in made]


def test_of_few_points_none_comes_twice() -> None:
    items = loop_items(study({"n": choice(1, 2, 3)}, max_trials=12))
    assert sorted(item["parameters"]["n"] for item in items) == [1, 2, 3]
    assert [item["number"] for item in items] == [0, 1, 2]


def test_a_grid_may_be_taken_whole() -> None:
    space = {"n": choice(1, 2, 3), "m": choice("a", "b")}
    assert len(loop_items(study(space, sampler=Sampler.GRID, max_trials=0))) == 6


def test_whole_numbers_stay_whole_and_text_from_the_ui_becomes_numbers() -> None:
    space = {
        "batch_size": {"type": "choice", "values": [32, 64]},
        "width": {"type": "int", "low": "8", "high": 16.0},
        "learning_rate": {"type": "uniform", "low": "3", "high": 3},
    }
    for item in loop_items(study(space, max_trials=4.0, seed="3")):
        parameters = item["parameters"]
        assert {name: type(value) for name, value in parameters.items()} == {
            "batch_size": int,
            "width": int,
            "learning_rate": float,
        }
        assert parameters["learning_rate"] == 3.0


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"max_trials": 2000}, ("2,000", str(MAX_LOOP_TRIALS), "component sweep")),
        ({"sampler": Sampler.TPE}, ("tpe", "quasirandom", "component sweep")),
        ({"sampler": Sampler.CMAES}, ("cmaes",)),
        (
            {"space": {f"{n}": choice("x" * 500) for n in range(9)} | SPACE, "max_trials": 50},
            ("50 trials", "component sweep"),
        ),
    ],
)
def test_what_a_loop_cannot_carry_is_refused_with_the_way_out(
    changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(SpecError) as refused:
        loop_items(study(**changes))
    assert all(part in str(refused.value) for part in parts)


def test_a_grid_of_too_many_points_is_refused() -> None:
    grid = study({"n": choice(*range(101))}, sampler=Sampler.GRID, max_trials=0)
    with pytest.raises(SpecError, match="101 trials"):
        loop_items(grid)


@pytest.mark.parametrize(
    "item",
    [{}, {"lr": 0.1}, {"number": 1}, {"number": -1, "parameters": {}}, {"number": 0}, "x", 0.1],
)
def test_an_item_of_something_else_is_refused(item: Any) -> None:
    with pytest.raises(SpecError):
        read_item(item)


def test_an_item_takes_its_dataset_along() -> None:
    item = read_item(loop_item(Trial(3, {"x": 1}), "/data"))
    assert (item.trial, item.dataset_uri) == (Trial(3, {"x": 1}), "/data")


def test_the_results_of_the_widest_loop_are_one_argument() -> None:
    curve = tuple((step * 1000, 1 / 3 + step) for step in range(200))
    uri = "minio://mlpipeline/v2/artifacts/" + "x" * 160
    space = {f"parameter_{n}": uniform(0, 1) for n in range(7)}
    items = loop_items(study(space, max_trials=MAX_LOOP_TRIALS))
    results = [
        to_result(
            Trial(
                item["number"],
                item["parameters"],
                TrialState.FAILED,
                -1 / 3 * 1e-300,
                curve,
                seconds=1e5 / 3,
                reason="missing-objective",
                message="a sentence 日本 " * 100,
                model_uri=uri,
            )
        )
        for item in items
    ]
    assert len(json.dumps(results, ensure_ascii=False).encode()) < ARGUMENT_BYTES


def test_a_result_says_all_and_holds_no_null() -> None:
    trial = complete(0, 0.0, curve=((1, 0.5), (2, 0.25)), model_uri="s3://b/model")
    assert read_results([to_result(trial)]) == [trial]
    assert None not in to_result(failed(1)).values()
    assert read_results([to_result(failed(1))]) == [failed(1)]


def test_a_long_message_is_cut_between_characters() -> None:
    result = to_result(Trial(0, {}, TrialState.FAILED, message="é" * 1000))
    assert len(result["message"].encode()) <= 300
    assert result["message"].endswith("é…")


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 200])
def test_a_thinned_curve_keeps_its_ends(count: int) -> None:
    curve = tuple((step, step / 7) for step in range(count))
    thin = thinned(curve)
    assert len(thin) == min(count, 10)
    assert list(thin[:1] + thin[-1:]) == list(curve[:1] + curve[-1:])


def test_results_come_back_in_order_with_the_types_that_kfp_took() -> None:
    space = Space.from_json({"dropout": uniform(0, 1), "n": choice(1, 2)})
    results = [
        {"number": 1, "state": "COMPLETE", "score": 1, "parameters": {"n": 2, "dropout": 1}},
        {"number": 0, "state": "COMPLETE", "score": 0.5, "parameters": {"n": 1, "dropout": 0}},
    ]
    first, second = read_results(results, space)
    assert (first.number, second.number) == (0, 1)
    assert repr(second.score) == "1.0"
    assert repr(dict(second.parameters)) in ("{'dropout': 1.0, 'n': 2}", "{'n': 2, 'dropout': 1.0}")


@pytest.mark.parametrize(
    ("results", "part"),
    [
        ([], "no trial"),
        ([{"number": 0}], "parameters"),
        (["0.5"], "trial returned"),
        ([{"number": 0, "parameters": {}, "score": float("nan")}], "trial returned"),
        ([{"number": 0, "parameters": {}}] * 2, "twice"),
    ],
)
def test_results_of_something_else_are_refused(results: list[Any], part: str) -> None:
    with pytest.raises(SpecError, match=part):
        read_results(results)


def test_a_round_prunes_those_that_do_not_go_on_and_adds_up_time() -> None:
    first = [complete(0, 0.5), complete(1, 0.9), complete(2, 0.7), failed(3)]
    going_on = survivors(first, 2, Direction.MAXIMIZE)
    assert [trial.number for trial in going_on] == [1, 2]
    table = without(first, going_on)
    assert [trial.state.value for trial in table] == ["PRUNED", "COMPLETE", "COMPLETE", "FAILED"]
    after = after_round(table, [complete(2, 0.95), complete(1, 0.8)])
    assert [trial.number for trial in after] == [0, 1, 2, 3]
    assert [trial.seconds for trial in after] == [2.0, 4.0, 4.0, 0.0]
    assert ranked(after, Direction.MAXIMIZE)[0].number == 2


@pytest.mark.parametrize(
    ("trials", "max_failed", "says"),
    [
        ([complete(0, 1.0)], -1, ""),
        ([complete(0, 1.0), failed(1)], -1, ""),
        (
            [complete(0, 1.0), failed(1)],
            0,
            "1 trial failed and at most 0 may; 1 of 1 by exception",
        ),
        (
            [complete(0, 1.0), failed(1, "diverged"), failed(2), failed(3)],
            -1,
            "3 trials failed and at most 2 may; 2 of 3 by exception, such as trial 2: Job 2 fell",
        ),
        ([failed(0)], -1, "the one trial was made; 1 of 1 by exception"),
        ([Trial(0, {}, TrialState.STOPPED)], -1, "but none is complete"),
    ],
)
def test_a_loop_fails_when_too_many_trials_did_or_none_is_complete(
    trials: list[Trial], max_failed: int, says: str
) -> None:
    end, words = loop_end(trials, max_failed)
    error = failure_of(end, words)
    assert (says in str(error)) if says else error is None
