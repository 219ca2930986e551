"""The ends of a program that the launcher tells apart from a crash.

BadInput  (a ValueError)       exit 64  the module, function or a parameter is wrong
Diverged  (an ArithmeticError) exit 65  reason "diverged": the loss is no longer finite
Stopped                        exit 75  stopped early on request, after saving
"""


class BadInput(ValueError):
    """The user can mend this; the message is one sentence that says what is valid."""


class Diverged(ArithmeticError):
    """The loss is not finite: every later step would be wasted.

    Attributes:
        step: the step whose loss it was.
    """

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(
            f"the loss is {loss} at step {step}: training has diverged; "
            "lower the learning rate or look at the data of that step"
        )
        self.step = step


class Stopped(Exception):
    """A program raises this after it saved because `run.stop_requested` was true.

    Attributes:
        step: the step that was saved.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped on request at step {step}")
        self.step = step
