"""MNIST by 1, 2 and 4 real processes: the same numbers, also after a kill."""

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from fakes.nodes import Nodes, start_nodes
from kfp_jax_runtime import exits
from kfp_jax_runtime.data.catalogue import MNIST
from kfp_jax_runtime.data.prepare import prepare
from kfp_jax_runtime.data.sources import Request, World

pytestmark = pytest.mark.integration

MNIST_PROGRAM = "kfp_jax_runtime.mnist"
# 46 steps of 256 an epoch over the bundled subset, so 92 in all.
SMALL = {"epochs": 2, "channels": [24], "hidden": 32, "report_every_steps": 1, "seed": 7}
STEPS = 92

GRADIENTS = """
import numpy as np

def main(run):
    import jax
    from kfp_jax_runtime.mesh import data_mesh, replicate
    from kfp_jax_runtime.mnist.batches import epoch_order
    from kfp_jax_runtime.mnist.config import MnistConfig
    from kfp_jax_runtime.mnist.step import (
        Data, batch_function, gradient_function, hyper, initial_state)

    config = MnistConfig(channels=(24,), hidden=16, max_rotation_degrees=10, label_smoothing=0.1)
    mesh = data_mesh()
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (512, 28, 28)).astype(np.uint8)
    labels = random.integers(0, 10, 512).astype(np.uint8)
    data = replicate(mesh, Data(images, labels, epoch_order(0, 0, 512)))
    batch = batch_function(config, mesh)(data, np.int32(0), hyper(config, 10))
    loss, gradient = gradient_function(config, mesh)(initial_state(config, mesh).params, batch)
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(gradient)])
    np.save(run.output_dir / f"gradient-{run.process_index}.npy", np.append(flat, loss))
    return {"loss": loss}
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "dataset"
    world = World({}, lambda line: None, lambda dataset: "")
    prepare(Request(MNIST, "bundled"), folder, world)
    return folder


@pytest.fixture(scope="module")
def by_count(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Nodes]:
    """The same training by 1, 2 and 4 processes, one after the other."""
    finished = {}
    for count in (1, 2, 4):
        output = tmp_path_factory.mktemp(f"by-{count}")
        nodes = start_nodes(MNIST_PROGRAM, output, SMALL, count=count, dataset=dataset)
        finished[count] = nodes.wait()
        assert set(nodes.codes) == {0}, nodes.outputs
    return finished


@pytest.mark.parametrize("count", [2, 4])
def test_losses_do_not_depend_on_the_number_of_processes(
    by_count: dict[int, Nodes], count: int
) -> None:
    one, many = (by_count[n].metric("loss") for n in (1, count))
    assert list(one) == list(many) == list(range(1, STEPS + 1))
    first = range(1, 51)
    np.testing.assert_allclose([many[s] for s in first], [one[s] for s in first], atol=1e-5)


def test_every_count_scores_the_whole_test_set_alike(by_count: dict[int, Nodes]) -> None:
    results = {count: nodes.result() for count, nodes in by_count.items()}
    for count, result in results.items():
        # One image of 2,000 may sit on the fence.
        assert result["accuracy"] == pytest.approx(results[1]["accuracy"], abs=0.0011), count
        assert result["loss"] == pytest.approx(results[1]["loss"], abs=1e-4)
    assert results[1]["accuracy"] > 0.9


def test_progress_comes_with_every_step_and_epochs_with_scores(by_count: dict[int, Nodes]) -> None:
    for nodes in by_count.values():
        assert [r["done"] for r in nodes.reports("progress")] == list(range(1, STEPS + 1))
        assert nodes.metric("epoch") == {46: 1, 92: 2}
        assert nodes.metric("accuracy")[92] == nodes.result()["accuracy"]


def test_gradients_of_many_processes_equal_those_of_one(tmp_path: Path) -> None:
    (tmp_path / "gradients.py").write_text(GRADIENTS)
    jobs = {}
    for count in (1, 2, 4):
        output = tmp_path / str(count)
        job = start_nodes("gradients", output, {}, count=count, python_path=tmp_path)
        job.wait().result()
        jobs[count] = [np.load(output / f"gradient-{index}.npy") for index in range(count)]
    one = jobs[1][0]
    assert np.abs(one).max() > 1e-2
    for count in (2, 4):
        for gradient in jobs[count]:
            # All processes hold the very same bits; only the order of the sum differs from one's.
            np.testing.assert_array_equal(gradient, jobs[count][0])
        np.testing.assert_allclose(jobs[count][0], one, atol=1e-6)


def test_a_killed_training_resumes_to_the_same_bits(
    by_count: dict[int, Nodes], dataset: Path, tmp_path: Path
) -> None:
    parameters = SMALL | {"checkpoint_every_steps": 20}
    killed = start_nodes(MNIST_PROGRAM, tmp_path, parameters, count=2, dataset=dataset)
    wait_for(tmp_path / "checkpoints" / "60")
    killed.kill()

    resumed = start_nodes(MNIST_PROGRAM, tmp_path, parameters, count=2, dataset=dataset).wait()
    whole = by_count[2]
    assert without_time(resumed.result()) == without_time(whole.result())
    start = resumed.reports("restored")[0]["step"]
    assert start >= 60
    after = resumed.metric("loss")
    assert list(after) == list(range(start + 1, STEPS + 1))
    assert after == {step: whole.metric("loss")[step] for step in after}


def test_a_stop_saves_and_another_number_of_processes_goes_on(
    by_count: dict[int, Nodes], dataset: Path, tmp_path: Path
) -> None:
    stopped = start_nodes(
        MNIST_PROGRAM, tmp_path, SMALL | {"checkpoint_every_steps": 20}, count=2, dataset=dataset
    )
    wait_for(tmp_path / "checkpoints" / "20")
    stopped.processes[1].send_signal(signal.SIGTERM)
    stopped.wait()
    assert stopped.codes == [75, 75]
    step = stopped.reports("error")[0]["step"]

    alone = start_nodes(MNIST_PROGRAM, tmp_path, SMALL, count=1, dataset=dataset).wait()
    assert alone.reports("restored")[0]["step"] == step
    accuracy = by_count[1].result()["accuracy"]
    assert alone.result()["accuracy"] == pytest.approx(accuracy, abs=0.003)


def test_a_finished_training_is_not_trained_again(
    by_count: dict[int, Nodes], dataset: Path, tmp_path: Path
) -> None:
    quick = SMALL | {"epochs": 1, "global_batch_size": 2000}
    first = start_nodes(MNIST_PROGRAM, tmp_path, quick, dataset=dataset).wait()
    again = start_nodes(MNIST_PROGRAM, tmp_path, quick, dataset=dataset).wait()
    assert again.metric("loss") == {}
    assert again.result()["accuracy"] == first.result()["accuracy"]
    evaluated = start_nodes(
        "kfp_jax_runtime.evaluate",
        tmp_path / "evaluated",
        {"model": str(tmp_path / "model")},
        count=2,
        dataset=dataset,
    ).wait()
    assert evaluated.result()["accuracy"] == first.result()["accuracy"]
    assert evaluated.result()["loss"] == pytest.approx(first.result()["loss"], abs=1e-6)
    documents = [
        json.loads((folder / "evaluation.json").read_text())
        for folder in (tmp_path, tmp_path / "evaluated")
    ]
    assert documents[0]["confusion"] == documents[1]["confusion"]
    assert documents[0]["examples"] == 2000


def test_a_batch_that_does_not_divide_is_refused_with_both_numbers(tmp_path: Path) -> None:
    nodes = start_nodes(MNIST_PROGRAM, tmp_path, {"global_batch_size": 100}, count=3).wait()
    assert set(nodes.codes) == {64}
    (error,) = nodes.reports("error")
    assert "global_batch_size 100 does not divide evenly among 3 processes" in error["message"]


def test_a_loss_that_is_not_finite_ends_the_job_at_its_step(dataset: Path, tmp_path: Path) -> None:
    wild = SMALL | {"learning_rate": 1e30, "warmup_fraction": 0.0, "report_every_steps": 1}
    nodes = start_nodes(MNIST_PROGRAM, tmp_path, wild, count=2, dataset=dataset).wait()
    assert set(nodes.codes) == {exits.DIVERGED}
    assert {nodes.reports("error", process)[0]["reason"] for process in (0, 1)} == {"diverged"}
    assert nodes.reports("error")[0]["step"] < 10


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 90
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def without_time(result: object) -> dict[str, float]:
    assert isinstance(result, dict)
    return {name: value for name, value in result.items() if name != "train_seconds"}
