"""The `select_best` component: what the trials of a loop came to."""

from kfp import dsl

from kfp_jax.components.definition import lean


@lean
def select_best(
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    leaderboard: dsl.Output[dsl.HTML],
    trials_table: dsl.Output[dsl.Dataset],
    results: list[dict],
    earlier: dsl.Input[dsl.Dataset] | None = None,
    objective: str = "accuracy",
    direction: str = "maximize",
    space: dict = {},  # noqa: B006  # KFP reads the default, and wants it plain
    sampler: str = "",
    seed: int = 0,
    program: str = "",
    parameters: dict = {},  # noqa: B006
    budget: dict = {},  # noqa: B006
    num_nodes: int = 1,
    max_failed: int = -1,
) -> dict:
    """Chooses the best trial of a loop; fails only when too many trials did, or all.

    Args:
        results: What the trials returned.
        earlier: The table of the rounds before, with successive halving.
        objective: The metric that trials are compared by.
        direction: maximize or minimize.
        space: What was tried, to say what mattered.
        sampler: How it was suggested, for the leaderboard.
        seed: The seed of that.
        program: What was trained, for the leaderboard.
        parameters: Parameters that all trials share.
        budget: Parameters that all trials of the last round share.
        num_nodes: How many nodes each trial trained on, for its machine time.
        max_failed: How many trials may fail before the step does; -1 for half of them.

    Returns:
        Output: The best trial's parameters, for parameters of train.
        model: The best trial's model, where that trial wrote it.
        metrics: The best score, and how many trials ended how.
        leaderboard: Scores, learning curves, what mattered, failures, machine time.
        trials_table: Every trial, one JSON object a line.
    """
    from kfp_jax import entry

    return entry.select_best(
        entry.BestOutputs(
            model=model, metrics=metrics, leaderboard=leaderboard, trials_table=trials_table
        ),
        results=results,
        earlier=earlier,
        objective=objective,
        direction=direction,
        space=space,
        sampler=sampler,
        seed=seed,
        program=program,
        parameters=parameters,
        budget=budget,
        num_nodes=num_nodes,
        max_failed=max_failed,
    )
