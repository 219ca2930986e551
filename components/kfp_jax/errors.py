"""Every error that kfp-jax raises on purpose.

    KfpJaxError
    ├── SpecError          the user can fix it; nothing was trained; never retried
    ├── ClusterError       the platform refused or did not answer
    │   ├── NotFound  Conflict  Forbidden  Rejected  Throttled  Unavailable
    ├── JobError           the job was started and did not succeed
    │   ├── JobFailed  JobLost  JobTimeout  JobCancelled
    └── OutputError        a result is missing, malformed or cannot be written

A message is one sentence: what, which object, what was seen, what to do. The command line ends with
`exit_code` of the class, so that scripts can tell the classes apart.
"""


class KfpJaxError(Exception):
    """Root of the tree; catch it to catch everything of ours."""

    exit_code = 70


class SpecError(KfpJaxError):
    """Bad input, refused before anything was trained. Exit code 2, as for bad arguments."""

    exit_code = 2


class ClusterError(KfpJaxError):
    """The platform that should run the job refused or did not answer.

    Attributes:
        reason: The platform's own word for it, such as AlreadyExists, or "".
        retry_after: Seconds for which it asks to be left alone; 0 where it does not say.
    """

    exit_code = 69

    def __init__(self, message: str, *, reason: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class NotFound(ClusterError):
    """The object is not there."""

    exit_code = 66


class Conflict(ClusterError):
    """Another object already has that name or place."""

    exit_code = 73


class Forbidden(ClusterError):
    """The account may not do this."""

    exit_code = 77


class Unheard(Forbidden):
    """The account may not read what the processes write, as `validate` has said."""


class Rejected(ClusterError):
    """The object was read and refused: by schema, admission or quota."""

    exit_code = 65


class Throttled(ClusterError):
    """Asked too often; try again later."""

    exit_code = 75


class Unavailable(ClusterError):
    """No answer, or an answer that says: not now."""

    exit_code = 69


class JobError(KfpJaxError):
    """The job was started and did not succeed."""

    exit_code = 1


class JobFailed(JobError):
    """A process of the job failed."""


class JobLost(JobError):
    """The job vanished while it was being waited for."""

    exit_code = 71


class JobTimeout(JobError):
    """One of the job's limits ran out; the job was ended."""

    exit_code = 124


class JobCancelled(JobError):
    """The job was ended because somebody asked for it."""

    exit_code = 130


class OutputError(KfpJaxError):
    """A result is missing, malformed or cannot be written."""

    exit_code = 74
