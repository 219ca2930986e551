"""The training loop: restore, step, report, evaluate, save; then export."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import jax
import numpy as np
from jax.typing import ArrayLike

from kfp_jax_runtime import evaluation
from kfp_jax_runtime.data.examples import Examples
from kfp_jax_runtime.data.opened import OpenDataset, open_dataset
from kfp_jax_runtime.errors import BadInput, Stopped
from kfp_jax_runtime.evaluation import Evaluation
from kfp_jax_runtime.export import export_model
from kfp_jax_runtime.mesh import data_mesh, local_rows, replicate
from kfp_jax_runtime.mnist import batches, model
from kfp_jax_runtime.mnist.config import MnistConfig
from kfp_jax_runtime.mnist.step import (
    Batch,
    Data,
    Hyper,
    State,
    batch_function,
    hyper,
    initial_state,
    step_function,
)
from kfp_jax_runtime.run import Run


@dataclass(frozen=True)
class Schedule:
    """How many steps there are, and what happens after which; steps count from 1."""

    steps_per_epoch: int
    total_steps: int
    report_every: int
    checkpoint_every: int

    def ends_epoch(self, step: int) -> bool:
        """Whether the test set is scored after this step."""
        return step % self.steps_per_epoch == 0

    def reports(self, step: int) -> bool:
        """Whether the loss of this step is reported."""
        return step == 1 or step % self.report_every == 0 or step == self.total_steps

    def saves(self, step: int) -> bool:
        """Whether a checkpoint follows this step."""
        return step % self.checkpoint_every == 0 or step == self.total_steps


@dataclass(frozen=True)
class Training:
    """What stays the same over all steps of one training."""

    run: Run
    config: MnistConfig
    schedule: Schedule
    numbers: Hyper
    batch: Callable[[Data, ArrayLike, Hyper], Batch]
    step: Callable[[State, Batch, Hyper], tuple[State, jax.Array]]
    predict: Callable[[object, np.ndarray], jax.Array]
    test: Examples


def train(run: Run, config: MnistConfig) -> Mapping[str, object]:
    """Trains from the newest checkpoint, or from the start, to the end.

    Returns:
        accuracy and loss on the test set, and how long it took.

    Raises:
        BadInput: the batch does not divide among the devices or exceeds the data, or there is no
            dataset.
        Diverged: the loss is not finite.
        Stopped: on request, after a save.
    """
    mesh = data_mesh()
    local_rows(config.global_batch_size, mesh)
    opened = open_dataset(run, config.dataset)
    examples = opened.load("train")
    schedule = schedule_of(config, len(examples))
    numbers = hyper(config, schedule.total_steps)
    training = Training(
        run,
        config,
        schedule,
        numbers,
        batch_function(config, mesh),
        step_function(config, mesh),
        model.compiled_predictor(config.channels, config.hidden),
        opened.load("test"),
    )
    first = batches.epoch_order(config.seed, 0, len(examples))
    data = replicate(mesh, Data(examples.images, examples.labels, first))

    def data_of(epoch: int) -> Data:
        order = batches.epoch_order(config.seed, epoch, len(examples))
        return data._replace(order=replicate(mesh, order))

    state = _restore(run, initial_state(config, mesh))
    began = time.monotonic()
    state, scores = _fit(training, state, data_of)
    seconds = time.monotonic() - began
    _write_results(training, opened, state, scores)
    return {
        "accuracy": scores.accuracy,
        "loss": scores.loss,
        "steps": schedule.total_steps,
        "train_seconds": round(seconds, 3),
    }


def schedule_of(config: MnistConfig, examples: int) -> Schedule:
    """Returns the steps that a config makes of so many examples.

    Raises:
        BadInput: there is not a single whole batch.
    """
    steps_per_epoch = examples // config.global_batch_size
    if steps_per_epoch == 0:
        raise BadInput(
            f"global_batch_size {config.global_batch_size} is more than the {examples} training "
            "examples; use a smaller one"
        )
    return Schedule(
        steps_per_epoch,
        steps_per_epoch * config.epochs,
        config.report_every_steps,
        config.checkpoint_every_steps,
    )


def _restore(run: Run, fresh: State) -> State:
    restored = run.checkpoints.restore(fresh)
    return fresh if restored is None else restored[1]


def _fit(
    training: Training, state: State, data_of: Callable[[int], Data]
) -> tuple[State, Evaluation]:
    """Does the steps that are left; returns the last state and its scores."""
    run, schedule = training.run, training.schedule
    done = int(state.step)
    data = data_of(done // schedule.steps_per_epoch)
    scores = None
    running: tuple[int, jax.Array] | None = None
    for step in range(done + 1, schedule.total_steps + 1):
        if (step - 1) % schedule.steps_per_epoch == 0:
            data = data_of((step - 1) // schedule.steps_per_epoch)
        batch = training.batch(data, np.int32(step - 1), training.numbers)
        state, loss = training.step(state, batch, training.numbers)
        # The step before is waited for only now that the next one is under way.
        if running is not None:
            _finish(training, *running)
        running = (step, loss)
        if run.stop_requested:
            _finish(training, *running)
            run.checkpoints.save(step, state, force=True)
            raise Stopped(step)
        if schedule.ends_epoch(step):
            _finish(training, *running)
            running = None
            scores = _evaluate(training, state)
            epoch = step // schedule.steps_per_epoch
            run.report(step, epoch=epoch, accuracy=scores.accuracy, test_loss=scores.loss)
        if schedule.saves(step):
            run.checkpoints.save(step, state)
    # The last step ends an epoch; without any, everything was done by an earlier attempt.
    return state, scores or _evaluate(training, state)


def _finish(training: Training, step: int, loss: jax.Array) -> None:
    """Waits for a step, and reports it."""
    loss.block_until_ready()
    training.run.progress(step, training.schedule.total_steps)
    # A loss that is not finite is reported at its own step: that ends the job.
    if training.schedule.reports(step) or not np.isfinite(np.asarray(loss)):
        training.run.report(step, loss=loss)


def _evaluate(training: Training, state: State) -> Evaluation:
    run = training.run
    params = _local(state.params)
    logits = evaluation.predict_all(
        lambda images: training.predict(params, images),
        training.test.images,
        run.process_index,
        run.process_count,
    )
    return evaluation.evaluate(logits, training.test)


def _local(tree: object) -> object:
    # Each process predicts its share by itself, on a device of its own.
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


def _write_results(
    training: Training, opened: OpenDataset, state: State, scores: Evaluation
) -> None:
    run, config = training.run, training.config
    if run.process_index != 0:
        return
    classes = opened.dataset.classes
    evaluation.write_evaluation(
        run.output_dir, scores, split="test", classes=classes, source=opened.source
    )
    export_model(
        run.model_dir,
        model.predictor(config.channels, config.hidden),
        _local(state.params),
        training.test.images[:1, ..., None],
        {
            "classes": list(classes),
            "outputs": "logits",
            "dataset": opened.dataset.name,
            "accuracy": scores.accuracy,
            "config": asdict(config),
        },
    )
