"""The `halve` component: between two rounds of successive halving."""

from kfp import dsl

from kfp_jax.components.definition import lean


@lean
def halve(
    trials_table: dsl.Output[dsl.Dataset],
    results: list[dict],
    keep: int,
    earlier: dsl.Input[dsl.Dataset] | None = None,
    direction: str = "maximize",
    max_failed: int = -1,
    dataset_uri: str = "",
) -> list[dict]:
    """Lets the best trials of a round go on: the next dsl.ParallelFor goes over what this returns.

    Args:
        results: What the trials of this round returned.
        keep: How many go on.
        earlier: The table of the round before.
        direction: maximize or minimize.
        max_failed: How many trials may fail before the step does; -1 for half of them.
        dataset_uri: Folder that prepare_data returned, or empty; each item takes it along.

    Returns:
        Output: One item for each trial that goes on.
        trials_table: Every trial so far, one JSON object a line.
    """
    from kfp_jax import entry

    return entry.halve(
        trials_table,
        results=results,
        earlier=earlier,
        keep=keep,
        direction=direction,
        max_failed=max_failed,
        dataset_uri=dataset_uri,
    )
