"""MNIST by 1, 2 and 4 real processes: the same numbers, also after a kill."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.idx_files import IMAGES, LABELS, idx_bytes
from fakes.nodes import Nodes, start_nodes
from kfp_jax_runtime import exits
from kfp_jax_runtime.data.catalogue import MNIST
from kfp_jax_runtime.data.examples import read_folder
from kfp_jax_runtime.data.prepare import prepare
from kfp_jax_runtime.data.sources import BUNDLED_DIR, Request, World

pytestmark = pytest.mark.integration

MNIST_PROGRAM = "kfp_jax_runtime.mnist"
# A few of the bundled digits, so that two epochs of 30 steps take a moment.
EXAMPLES = {"train": 970, "test": 400}
STEPS = 60
SMALL = {
    "epochs": 2,
    "global_batch_size": 32,
    "channels": [24],
    "hidden": 32,
    "max_rotation_degrees": 5,
    "report_every_steps": 1,
    "checkpoint_every_steps": 10,
    "seed": 7,
}

# The program, after it has put the gradient of its first batch on disk.
WITH_GRADIENT = """
import numpy as np
from kfp_jax_runtime import mnist

def main(run, config: mnist.MnistConfig):
    import jax
    from kfp_jax_runtime.data.opened import open_dataset
    from kfp_jax_runtime.mesh import data_mesh, replicate
    from kfp_jax_runtime.mnist.batches import epoch_order
    from kfp_jax_runtime.mnist.step import (
        Data, batch_function, gradient_function, hyper, initial_state)

    mesh = data_mesh()
    train = open_dataset(run, "auto").load("train")
    order = epoch_order(config.seed, 0, len(train))
    data = replicate(mesh, Data(train.images, train.labels, order))
    batch = batch_function(config, mesh)(data, np.int32(0), hyper(config, 60))
    loss, gradient = gradient_function(config, mesh)(initial_state(config, mesh).params, batch)
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(gradient)])
    np.save(run.output_dir / f"gradient-{run.process_index}.npy", np.append(flat, loss))
    return mnist.main(run, config)
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    unchecked = replace(MNIST, md5={})
    for split, examples in read_folder(BUNDLED_DIR, unchecked).items():
        few = slice(EXAMPLES[split])
        (folder / IMAGES[split]).write_bytes(idx_bytes(examples.images[few]))
        (folder / LABELS[split]).write_bytes(idx_bytes(examples.labels[few]))
    world = World({}, lambda line: None, lambda dataset: "")
    prepare(Request(unchecked, folder=folder), folder / "dataset", world)
    return folder / "dataset"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def by_count(dataset: Path, outputs: Path) -> dict[int, Nodes]:
    """The same training by 1, 2 and 4 processes, one after the other."""
    (outputs / "with_gradient.py").write_text(WITH_GRADIENT)
    finished = {}
    for count in (1, 2, 4):
        finished[count] = start_nodes(
            "with_gradient",
            outputs / str(count),
            SMALL,
            count=count,
            dataset=dataset,
            python_path=outputs,
        ).wait()
        assert set(finished[count].codes) == {0}, finished[count].outputs
    return finished


@pytest.mark.parametrize("count", [2, 4])
def test_losses_do_not_depend_on_the_number_of_processes(
    by_count: dict[int, Nodes], count: int
) -> None:
    one, many = (by_count[n].metric("loss") for n in (1, count))
    assert list(one) == list(many) == list(range(1, STEPS + 1))
    first = range(1, 51)
    np.testing.assert_allclose([many[s] for s in first], [one[s] for s in first], atol=1e-5)
    assert one[STEPS] < 0.5 * one[1]


@pytest.mark.parametrize("count", [2, 4])
def test_gradients_of_many_processes_equal_those_of_one(
    by_count: dict[int, Nodes], outputs: Path, count: int
) -> None:
    one = np.load(outputs / "1" / "gradient-0.npy")
    many = [np.load(outputs / str(count) / f"gradient-{index}.npy") for index in range(count)]
    assert np.abs(one).max() > 1e-2
    np.testing.assert_allclose(many[0], one, atol=1e-6)
    for gradient in many:
        # Among themselves the processes hold the very same bits.
        np.testing.assert_array_equal(gradient, many[0])


def test_every_count_scores_the_whole_test_set_alike(by_count: dict[int, Nodes]) -> None:
    results = {count: nodes.result() for count, nodes in by_count.items()}
    for count, result in results.items():
        # One image of the 400 may sit on the fence.
        assert result["accuracy"] == pytest.approx(results[1]["accuracy"], abs=0.0026), count
        assert result["loss"] == pytest.approx(results[1]["loss"], abs=1e-4)


def test_progress_comes_with_every_step_and_scores_with_every_epoch(
    by_count: dict[int, Nodes],
) -> None:
    for nodes in by_count.values():
        assert [r["done"] for r in nodes.reports("progress")] == list(range(1, STEPS + 1))
        assert nodes.metric("epoch") == {30: 1, 60: 2}
        assert nodes.metric("accuracy")[60] == nodes.result()["accuracy"]


def test_a_killed_training_resumes_to_the_same_bits(
    by_count: dict[int, Nodes], dataset: Path, tmp_path: Path
) -> None:
    killed = start_nodes(MNIST_PROGRAM, tmp_path, SMALL, count=2, dataset=dataset)
    wait_for(tmp_path / "checkpoints" / "10")
    killed.kill()

    resumed = start_nodes(MNIST_PROGRAM, tmp_path, SMALL, count=2, dataset=dataset).wait()
    whole = by_count[2]
    assert without_time(resumed.result()) == without_time(whole.result())
    start = resumed.reports("restored")[0]["step"]
    assert 10 <= start < STEPS
    after = resumed.metric("loss")
    assert list(after) == list(range(start + 1, STEPS + 1))
    assert after == {step: whole.metric("loss")[step] for step in after}


def test_a_stop_saves_and_another_number_of_processes_goes_on(
    by_count: dict[int, Nodes], dataset: Path, tmp_path: Path
) -> None:
    stopped = start_nodes(MNIST_PROGRAM, tmp_path, SMALL, count=2, dataset=dataset)
    wait_for(tmp_path / "checkpoints" / "10")
    stopped.processes[1].send_signal(signal.SIGTERM)
    stopped.wait()
    assert stopped.codes == [exits.STOPPED, exits.STOPPED]
    step = stopped.reports("error")[0]["step"]

    alone = start_nodes(MNIST_PROGRAM, tmp_path, SMALL, count=1, dataset=dataset).wait()
    assert alone.reports("restored")[0]["step"] == step
    whole = by_count[1].metric("loss")
    losses = alone.metric("loss")
    assert losses == pytest.approx({step: whole[step] for step in losses}, abs=1e-4)


def test_a_finished_training_is_not_trained_again_and_evaluate_agrees(
    dataset: Path, tmp_path: Path
) -> None:
    quick = SMALL | {"epochs": 1, "global_batch_size": 300}
    first = start_nodes(MNIST_PROGRAM, tmp_path, quick, dataset=dataset).wait().result()
    again = start_nodes(MNIST_PROGRAM, tmp_path, quick, dataset=dataset).wait()
    assert again.metric("loss") == {}
    assert again.result()["accuracy"] == first["accuracy"]
    evaluated = start_nodes(
        "kfp_jax_runtime.evaluate",
        tmp_path / "evaluated",
        {"model": str(tmp_path / "model")},
        count=2,
        dataset=dataset,
    ).wait()
    assert evaluated.result()["accuracy"] == first["accuracy"]
    assert evaluated.result()["loss"] == pytest.approx(first["loss"], abs=1e-5)
    documents = [
        json.loads((folder / "evaluation.json").read_text())
        for folder in (tmp_path, tmp_path / "evaluated")
    ]
    assert documents[0]["confusion"] == documents[1]["confusion"]
    assert documents[0]["examples"] == EXAMPLES["test"]


def test_a_batch_that_does_not_divide_is_refused_with_both_numbers(tmp_path: Path) -> None:
    nodes = start_nodes(MNIST_PROGRAM, tmp_path, {"global_batch_size": 100}, count=3).wait()
    assert set(nodes.codes) == {exits.BAD_INPUT}
    (error,) = nodes.reports("error")
    assert "a global batch of 100 rows does not divide evenly among 3 devices" in error["message"]


def test_a_loss_that_is_not_finite_ends_the_job_at_its_step(dataset: Path, tmp_path: Path) -> None:
    wild = SMALL | {"learning_rate": 1e30, "warmup_fraction": 0.0}
    nodes = start_nodes(MNIST_PROGRAM, tmp_path, wild, count=2, dataset=dataset).wait()
    assert set(nodes.codes) == {exits.DIVERGED}
    errors = [nodes.reports("error", process)[0] for process in (0, 1)]
    assert {error["reason"] for error in errors} == {"diverged"}
    assert errors[0]["step"] < 10


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 90
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def without_time(result: object) -> dict[str, float]:
    assert isinstance(result, dict)
    return {name: value for name, value in result.items() if name != "train_seconds"}
