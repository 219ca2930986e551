"""What makes a component of a function, and in a task leaves it as it is.

A task's text in a pipeline is then one import: the function is in its image. But what defines
components is not to be had there, as KFP offers tasks its types alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kfp import dsl

if TYPE_CHECKING or hasattr(dsl, "component"):
    from kfp_jax.components.launching import launching, lean
else:

    def launching(function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function."""
        return function

    lean = launching

__all__ = ["launching", "lean"]
