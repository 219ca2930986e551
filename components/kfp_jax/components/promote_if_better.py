"""The `promote_if_better` component: a model against the one in production."""

from kfp import dsl

from kfp_jax.components.definition import launching


@launching
def promote_if_better(
    model: dsl.Input[dsl.Model],
    lineage: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    score: float,
    dataset_uri: str,
    production: str,
    task_config: dsl.TaskConfig,
    min_score: float = 0.0,
    min_gain: float = 0.0,
    run_id: str = "",
    pods: dict = {},  # noqa: B006  # KFP reads the default, and wants it plain
    backend: str = "auto",
) -> bool:
    """Puts a model into production if it is better than the one that is there.

    Args:
        task_config: Filled in by KFP with what is set on the task.
        model: The candidate, which train exported.
        score: What it scored on the test examples of dataset_uri; more is better.
        dataset_uri: Folder that prepare_data returned; the model in production is scored on it too.
        production: Folder that says what is in production, and holds the models.
        min_score: What a model must score in any case.
        min_gain: By how much it must be better; equal is never better.
        run_id: Kept with the model; give dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        pods: What the pods of the job are beyond what is set on the task: image, queue, ...
        backend: Where to score: trainer, jobset, local, or auto to choose.

    Returns:
        Output: Whether the model is in production now.
        lineage: The decision, what is in production, and what it took the place of.
        metrics: Both scores, and whether the model was promoted.
    """
    from kfp_jax import entry

    return entry.promote_if_better(
        entry.PromoteOutputs(lineage=lineage, metrics=metrics),
        model=model,
        score=score,
        dataset_uri=dataset_uri,
        production=production,
        min_score=min_score,
        min_gain=min_gain,
        run_id=run_id,
        task_config=task_config,
        pods=pods,
        backend=backend,
    )
