"""HTML reports of a training job and of an evaluation, and the leaderboard of a sweep.

The pages hold no script and ask for nothing from the network, so that they show the same from a
file, in a notebook, and inside the sandboxed frame of the pipelines UI. Reports are at most 300 KB,
a leaderboard at most 1.5 MB.
"""

from kfp_jax.html.leaderboard import MAX_LEADERBOARD_BYTES, render_leaderboard
from kfp_jax.html.report import MAX_BYTES, render_evaluation, render_report

__all__ = [
    "MAX_BYTES",
    "MAX_LEADERBOARD_BYTES",
    "render_evaluation",
    "render_leaderboard",
    "render_report",
]
