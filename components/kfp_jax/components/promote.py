"""The `promote` component: what a gate lets through."""

from kfp import dsl

from kfp_jax.components.definition import lean


@lean
def promote(
    model: dsl.Input[dsl.Model],
    promoted: dsl.Output[dsl.Model],
    score: float,
) -> str:
    """Publishes a model that passed a gate, with its score; put it under `dsl.If`.

    Args:
        model: The model that passed.
        score: What it scored.

    Returns:
        Output: The model's URI.
        promoted: The same model, marked with its score; nothing is copied.
    """
    from kfp_jax import entry

    return entry.promote(model, promoted, score=score)
