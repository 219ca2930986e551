"""A pipeline around the program `sine`: train, and promote the model if it is good enough."""

from kfp import dsl, local
from kfp_jax.components import promote, train


@dsl.pipeline(name="sine")
def sine(num_nodes: int = 2, parameters: dict = {}) -> float:  # noqa: B006
    """Trains on `num_nodes` nodes and returns the largest error of the model."""
    training = train(program="sine", parameters=parameters, num_nodes=num_nodes, objective="error")
    with dsl.If(training.outputs["Output"] < 0.2):
        promote(model=training.outputs["model"], score=training.outputs["Output"])
    return training.outputs["Output"]


if __name__ == "__main__":
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root="build/docs/sine-pipeline")
    sine(num_nodes=2, parameters={"steps": 300})
