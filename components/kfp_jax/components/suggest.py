"""The `suggest` component: the trials of a loop."""

from kfp_jax.components.definition import lean


@lean
def suggest(
    space: dict,
    max_trials: int = 20,
    sampler: str = "random",
    seed: int = 0,
    dataset_uri: str = "",
) -> list[dict]:
    """Suggests parameters for the trials of a loop: dsl.ParallelFor over what this returns.

    Args:
        space: What to try, for example {"width": {"type": "int", "low": 8, "high": 64}}.
        max_trials: How many trials, 100 at most; 0 for every point of the space.
        sampler: How parameters are suggested: random, grid or quasirandom.
        seed: Same seed, same suggestions.
        dataset_uri: Folder that prepare_data returned, or empty; each item takes it along.

    Returns:
        Output: One item for each trial: its number, its parameters, the dataset.
    """
    from kfp_jax import entry

    return entry.suggest(
        space=space,
        max_trials=max_trials,
        sampler=sampler,
        seed=seed,
        dataset_uri=dataset_uri,
    )
