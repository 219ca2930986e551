"""`kfp-jax doctor`: whether a job can run, and what to do where it cannot."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from kfp_jax import doctor as table
from kfp_jax.cli import options
from kfp_jax.cli.cluster import connected, knows_cluster
from kfp_jax.cli.tables import STYLES, print_json
from kfp_jax.doctor import Checkup, ClusterFacts, Finding
from kfp_jax.errors import ClusterError, SpecError
from kfp_jax.pods import Pods
from kfp_jax.survey import survey_cluster, survey_machine

_BACKENDS = ("auto", table.LOCAL, *table.CLUSTER)


@options.takes_pods
def doctor(
    pods: Pods,
    *,
    backend: options.BackendName = "auto",
    namespace: options.Namespace = "",
    context: options.Context = "",
    account: Annotated[
        str,
        typer.Option(
            help="Whose rights count: a service account of the namespace, such as pipeline-runner."
        ),
    ] = "",
    as_json: options.Json = False,
) -> None:
    """Say whether a job can run, here and on the cluster, and what to do where it cannot.

    The exit code is 0 only if one can. With `auto` it is the cluster that counts, where one is
    known. Nothing is changed.

    Examples:
    kfp-jax doctor --backend local

    kfp-jax doctor --namespace team --cpu 4 --memory 16Gi

    kfp-jax doctor --namespace kubeflow --account pipeline-runner
    """
    if backend not in _BACKENDS:
        raise SpecError(f"backend is {backend!r:.60}; give one of {', '.join(_BACKENDS)}.")
    checkups: dict[str, Checkup] = {}
    if backend in ("auto", table.LOCAL):
        checkups["this machine"] = table.examine_machine(survey_machine())
    if backend in table.CLUSTER or (backend == "auto" and knows_cluster(context)):
        checkups["the cluster"] = _examine_cluster(context, namespace, account, pods)
    able = [name for c in checkups.values() for name in c.able if backend in ("auto", name)]
    title, last = list(checkups.items())[-1]  # the cluster, where one is known
    if as_json:
        found = {name: [item.to_json() for item in c.findings] for name, c in checkups.items()}
        print_json({"able": able, "findings": found})
    else:
        for name, checkup in checkups.items():
            _print(name.capitalize(), checkup.findings)
        sys.stdout.write(f"A job can run: {', '.join(able) or 'nowhere'}.\n")
    # A sound laptop does not mend a cluster.
    if not set(able) & set(last.able):
        way = "" if backend == "auto" else f" by the backend {backend}"
        raise ClusterError(f"No job can run on {title}{way}; mend what is marked as a problem.")


def _examine_cluster(context: str, namespace: str, account: str, pods: Pods) -> Checkup:
    try:
        with connected(context, namespace) as (client, where):
            return table.examine_cluster(survey_cluster(client, where, account), pods)
    except ClusterError as error:  # a kubeconfig that cannot be used is a finding, too
        return table.examine_cluster(
            ClusterFacts(server="", namespace=namespace, unreachable=str(error)), pods
        )


def _print(title: str, findings: tuple[Finding, ...]) -> None:
    console = Console()
    if not console.is_terminal:
        sys.stdout.write("\n".join([f"{title}:", *(f"  {line}" for line in lines(findings)), ""]))
        return
    console.print(Text(title, style="bold"))
    for line in lines(findings):
        level = line.split(" ", 1)[0]
        console.print(Text(f"  {line}", style=STYLES.get(level, "")), soft_wrap=True)


def lines(findings: Iterable[Finding]) -> list[str]:
    """Returns the findings as aligned lines, each remedy below those that it mends. Pure."""
    findings = list(findings)
    width = max(len(item.check) for item in findings)
    found = []
    for item, after in zip(findings, [*findings[1:], None], strict=True):
        found.append(f"{item.level.value:<7}  {item.check:<{width}}  {item.seen}")
        if item.remedy and (after is None or after.remedy != item.remedy):
            found.append(f"{'':7}  -> {item.remedy}")
    return found
