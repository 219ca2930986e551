"""Names that Kubernetes accepts, the same for the same task."""

import hashlib
import re

MAX_PREFIX = 20
MAX_JOB_NAME = 33  # what every kind of Trainer runtime takes, see job_name
_HASH = 8


def job_name(prefix: str, identity: str, attempt: int) -> str:
    """Returns the job's name: readable prefix, hash of the task's identity, attempt number.

    The same task gives the same name, so a launcher that is started again finds its job; a new
    attempt gives a new name, so a used name never comes back. 33 characters is the longest TrainJob
    name that survives an initializer's pods (JobSet counts the generated pod name against 63).

    Args:
        prefix: Free text; what is not a letter or digit becomes a dash.
        identity: What is equal over retries of one task and differs between tasks.
        attempt: 1, 2, ...; at most 999.
    """
    digest = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:_HASH]
    return f"{slug(prefix, MAX_PREFIX)}-{digest}-{attempt}"


def attempt_of(name: str) -> int:
    """Returns the attempt number in a job's name, 1 for a name that is not ours."""
    number = name.rpartition("-")[2]
    return int(number) if re.fullmatch(r"[1-9]\d{0,2}", number) else 1


def next_attempt(name: str) -> str:
    """Returns the name of the attempt after one of `job_name`."""
    return f"{name.rpartition('-')[0]}-{attempt_of(name) + 1}"


def slug(text: str, limit: int) -> str:
    """Returns `text` as a DNS label of at most `limit` characters that starts with a letter."""
    dashed = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not dashed or not dashed[0].isalpha():
        dashed = f"job-{dashed}"
    return dashed[:limit].rstrip("-")


def label_value(text: str) -> str:
    """Returns `text` as a Kubernetes label value: at most 63 characters, shortened with a hash."""
    cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")
    if len(cleaned) <= 63:
        return cleaned
    return f"{cleaned[:54]}-{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"
