"""HTML reports of a training job and of an evaluation: self-contained, at most 300 KB.

The pages hold no script and ask for nothing from the network, so that they show the same from a
file, in a notebook, and inside the sandboxed frame of the pipelines UI.
"""

from kfp_jax.html.report import MAX_BYTES, render_evaluation, render_report

__all__ = ["MAX_BYTES", "render_evaluation", "render_report"]
