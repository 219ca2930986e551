"""The program that scores an exported model on a split of the job's dataset."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kfp_jax_store import is_remote

from kfp_jax_runtime import model_folder, node
from kfp_jax_runtime.data.catalogue import DatasetChoice, Split
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.run import Run
from kfp_jax_runtime.stored import cached


@dataclass(frozen=True)
class EvaluateConfig:
    """The parameters of this program."""

    model: str
    """The folder or URI that a training exported its model to."""
    split: Split = "test"
    dataset: DatasetChoice = "auto"
    """"auto" takes what the dataset folder holds, or MNIST when the job has no dataset."""

    def folder(self) -> Path:
        """Returns the model's folder.

        Raises:
            BadInput: it holds no model.
        """
        folder = cached(self.model) if is_remote(self.model) else node.folder("model", self.model)
        if not model_folder.holds_model(folder):
            raise BadInput(
                f"model {self.model!r} is not an exported model: {folder} holds no "
                f"{model_folder.DESCRIPTION}; set `model` to the folder {model_folder.NAME!r} in "
                "a training's output"
            )
        return folder


def main(run: Run, config: EvaluateConfig) -> Mapping[str, object]:
    """Evaluates; returns accuracy and loss, and writes `evaluation.json`."""
    folder = config.folder()
    # The launcher imports this module to check parameters, and should not wait for JAX.
    from kfp_jax_runtime import evaluation
    from kfp_jax_runtime.data.opened import open_dataset
    from kfp_jax_runtime.export import load_model

    opened = open_dataset(run, config.dataset)
    examples = opened.load(config.split)
    logits = evaluation.predict_all(
        load_model(folder), examples.images, run.process_index, run.process_count
    )
    scores = evaluation.evaluate(logits, examples)
    run.progress(len(examples), len(examples), unit="example")
    if run.process_index == 0:
        evaluation.write_evaluation(
            run.output_dir,
            scores,
            split=config.split,
            classes=opened.dataset.classes,
            source=opened.source,
        )
    return {"accuracy": scores.accuracy, "loss": scores.loss, "examples": scores.examples}
