"""Whether a job can run, as a table: each check turns facts into findings with a remedy. Pure.

`survey` collects the facts; nothing here asks anybody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from kfp_jax import __version__, quantities
from kfp_jax.errors import SpecError
from kfp_jax.manifests import rights
from kfp_jax.manifests.dialect import dialect_of_schema
from kfp_jax.manifests.identity import MANAGED_BY, PREFIX
from kfp_jax.manifests.pod import DEFAULT_REQUESTS, FLAVORS, flavor, pod_template, resources
from kfp_jax.manifests.pod_security import ENFORCED, PRIVILEGED, refusal
from kfp_jax.manifests.runtime import check_runtime, shipped_name
from kfp_jax.manifests.template import node_container
from kfp_jax.pods import Pods

Manifest = Mapping[str, Any]

LOCAL, TRAINER, JOBSET = "local", "trainer", "jobset"
CLUSTER = (TRAINER, JOBSET)

_OVERLAYS = "runtimes/manifests/overlays"
_INSTALL = f"kubectl apply --server-side -k {_OVERLAYS}/standalone"
_INSTALL_TRAINER = (
    'kubectl apply --server-side -k "https://github.com/kubeflow/trainer.git/manifests/overlays/'
    'manager?ref=v2.3.0"'
)
_INSTALL_JOBSET = (
    "kubectl apply --server-side -f https://github.com/kubernetes-sigs/jobset/releases/download/"
    "v0.12.0/manifests.yaml"
)
_KFP_NAMESPACE, _KFP_ACCOUNT = "kubeflow", "pipeline-runner"
_PROFILE = "kubeflow-user-example-com"  # as our overlay calls it
# What beside the runtimes our overlays install.
_SHIPPED = ("kfp-jax-launcher", "kfp-jax-nodes", "kfp-jax-view-runtimes")
_UNREADABLE = "unknown: this account may not read that"


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"  # jobs run, but somebody should know
    PROBLEM = "problem"  # on some backend no job runs


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        check: What was looked at.
        seen: What was seen.
        remedy: A command to type, or what to do; "" where there is nothing to mend.
        blocks: The backends on which no job can run while this holds.
    """

    check: str
    seen: str
    remedy: str = ""
    blocks: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        """How bad it is."""
        if self.blocks:
            return Level.PROBLEM
        return Level.NOTE if self.remedy else Level.OK

    def to_json(self) -> dict[str, Any]:
        """Returns it for machines."""
        return {
            "check": self.check,
            "level": self.level.value,
            "seen": self.seen,
            "remedy": self.remedy,
            "blocks": list(self.blocks),
        }


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """This machine.

    Attributes:
        python: Its version.
        cores: How many this process may use.
        jax: JAX's version; "" where it is not installed.
        jax_error: Why it cannot be imported, or "".
        kfp: The version of the SDK of Kubeflow Pipelines, or "".
    """

    python: str
    cores: int
    jax: str
    jax_error: str
    kfp: str


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """A cluster and one namespace of it.

    Attributes:
        server: Address of the API server.
        namespace: Where the job would be.
        version: Of Kubernetes.
        unreachable: Why the server does not answer, or "".
        trainjob_fields: All field names in the schema of TrainJobs; None where they are not served.
        trainer_version: What the Trainer says of itself, or "".
        jobset_fields: All field names in the schema of JobSets; None where they are not served.
        runtimes: Our runtimes by name, None for one that is not there; None where the account may
            not read them.
        account: Whose rights were looked at: a service account of the namespace, or "" for whoever
            asks.
        account_there: Whether that service account is.
        denied: Group, resource and verb of each call that the account may not make.
        queues: Kueue's queues in the namespace, each with why it admits no job, or ""; None where
            Kueue is not served.
        queues_readable: Whether the account may read them.
        namespace_there: Whether the namespace is, as far as the account may know.
        namespace_labels: Its labels; None where the account may not read them.
        quotas: Its ResourceQuotas; None where the account may not read them.
        limit_ranges: Its LimitRanges; None where the account may not read them.
        policies: Whether our network policy is in the namespace; None where the account may not
            read them.
        installed: Kind, name and version of each object that an installation of ours has made, as
            far as the account may read them.
        kfp_retries: Whether the pipelines' Argo retries, by default, steps that end in an error.
    """

    server: str
    namespace: str
    version: str = ""
    unreachable: str = ""
    trainjob_fields: frozenset[str] | None = None
    trainer_version: str = ""
    jobset_fields: frozenset[str] | None = None
    runtimes: Mapping[str, Manifest | None] | None = None
    denied: frozenset[tuple[str, str, str]] = frozenset()
    account: str = ""
    account_there: bool = True
    queues: Mapping[str, str] | None = None
    queues_readable: bool = True
    namespace_there: bool = True
    namespace_labels: Mapping[str, str] | None = field(default_factory=dict)
    quotas: tuple[Manifest, ...] | None = ()
    limit_ranges: tuple[Manifest, ...] | None = ()
    policies: bool | None = True
    installed: tuple[tuple[str, str, str], ...] = ()
    kfp_retries: bool = False


@dataclass(frozen=True)
class Checkup:
    """All findings, and the backends on which a job can run."""

    findings: tuple[Finding, ...]
    able: tuple[str, ...]


def examine_machine(machine: MachineFacts) -> Checkup:
    """Returns whether a job can run on this machine."""
    findings = (
        Finding("Python", machine.python),
        Finding("cores", f"{machine.cores}, of which each process of a job here takes one"),
        _jax(machine),
        _kfp(machine),
    )
    return _checkup(findings, (LOCAL,))


def examine_cluster(cluster: ClusterFacts, pods: Pods) -> Checkup:
    """Returns whether a job of one node with such pods can run in the namespace."""
    if cluster.unreachable:
        remedy = "kubectl config get-contexts, and name one of them with --context"
        return Checkup((Finding("API server", cluster.unreachable, remedy, CLUSTER),), ())
    findings = [finding for check in CHECKS for finding in check(cluster, pods)]
    return _checkup(findings, CLUSTER)


def _checkup(findings: Iterable[Finding], backends: tuple[str, ...]) -> Checkup:
    findings = tuple(findings)
    blocked = {name for finding in findings for name in finding.blocks}
    return Checkup(findings, tuple(name for name in backends if name not in blocked))


def _jax(machine: MachineFacts) -> Finding:
    remedy = "pip install 'kfp-jax[jax]'"
    if not machine.jax:
        return Finding("JAX", "not installed", remedy, (LOCAL,))
    if machine.jax_error:
        seen = f"{machine.jax} cannot be imported: {machine.jax_error}"
        return Finding("JAX", seen, f"{remedy} --upgrade --force-reinstall", (LOCAL,))
    return Finding("JAX", machine.jax)


def _kfp(machine: MachineFacts) -> Finding:
    check = "Kubeflow Pipelines SDK"
    if machine.kfp:
        return Finding(check, machine.kfp)
    return Finding(check, "not installed, so no pipelines", "pip install 'kfp-jax[kfp]'")


def _server(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    found = [Finding("API server", f"{cluster.server}, Kubernetes {cluster.version}")]
    name = cluster.namespace
    if not cluster.namespace_there:
        create = f"kubectl create namespace {name}"
        return [*found, Finding("namespace", f"{name} is not there", create, CLUSTER)]
    return [*found, Finding("namespace", name)]


def _trainer(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    check = "Kubeflow Trainer"
    if cluster.trainjob_fields is None:
        return [Finding(check, "not installed", _INSTALL_TRAINER, (TRAINER,))]
    try:
        dialect = dialect_of_schema(cluster.trainjob_fields)
    except SpecError as error:
        return [Finding(check, str(error), _INSTALL_TRAINER, (TRAINER,))]
    told = cluster.trainer_version
    # A build from source calls itself "dev".
    known = told if told[:2].strip("v").isdecimal() else f"{dialect} by its schema"
    return [Finding(check, f"{known}, API {rights.TRAINER_VERSION}")]


def _jobset(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    check = "JobSet"
    if cluster.jobset_fields is None:  # what a TrainJob's pods come from, too
        return [Finding(check, "not installed", _INSTALL_JOBSET, CLUSTER)]
    if "restartStrategy" not in cluster.jobset_fields:
        seen = "too old: its failurePolicy has no restartStrategy"
        return [Finding(check, seen, _INSTALL_JOBSET, (JOBSET,))]
    return [Finding(check, f"API {rights.JOBSET_VERSION}")]


def _runtimes(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    if cluster.trainjob_fields is None:
        return []
    if cluster.runtimes is None:
        seen = "may not be read, so they are taken to be as kfp-jax ships them"
        return [Finding("runtimes", seen)]
    level = _level(cluster)
    wanted = pods.runtime or shipped_name(flavor(pods))
    found = []
    for name, runtime in cluster.runtimes.items():
        seen = _runtime_problem(runtime, level)
        blocks = (TRAINER,) if name == wanted else ()
        if seen:
            found.append(Finding(f"runtime {name}", seen, _INSTALL, blocks))
        elif runtime:
            found.append(_sound_runtime(name, runtime))
    return found


def _runtime_problem(runtime: Manifest | None, level: str) -> str:
    """Returns why no job can run on a runtime, or ""."""
    if runtime is None:
        return "not installed"
    try:
        pod = check_runtime(runtime)
    except SpecError as error:
        return str(error)
    refused = refusal(pod, level)
    return f"the namespace is {level} and refuses its pods: {refused}" if refused else ""


def _sound_runtime(name: str, runtime: Manifest) -> Finding:
    """Returns whose a runtime is on which jobs can run."""
    check = f"runtime {name}"
    image = str(node_container(check_runtime(runtime)).get("image", "none"))
    if runtime["metadata"].get("labels", {}).get(MANAGED_BY) != PREFIX:
        return Finding(check, f"not made by kfp-jax, image {image}", _INSTALL)
    if image.rpartition(":")[2] != __version__:
        seen = f"of another version than this {__version__}, image {image}"
        return Finding(check, seen, _INSTALL)
    return Finding(check, f"image {image}")


def _rights(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    served = {
        rights.TRAINER_GROUP: cluster.trainjob_fields is not None,
        rights.JOBSET_GROUP: cluster.jobset_fields is not None,
    }
    who = f"account {cluster.account}" if cluster.account else "this account"
    if not cluster.account_there:
        seen = f"service account {cluster.account} is not there"
        remedy = f"kubectl create serviceaccount {cluster.account} -n {cluster.namespace}"
        return [Finding("rights", seen, remedy, CLUSTER)]
    found = []
    for right in (*rights.LAUNCHER, *(() if cluster.queues is None else (rights.QUEUE,))):
        denied = [call[2] for call in right.calls() if call in cluster.denied]
        if denied and served.get(right.group, True):
            without = f", so {right.without}" if right.without else ""
            seen = f"{who} may not {', '.join(denied)}{without}"
            queued = right is rights.QUEUE
            remedy = _install_rights(cluster.namespace, cluster.account, queued=queued)
            what = f"{right.resource} {right.name}".rstrip()
            found.append(Finding(f"right {what}", seen, remedy, right.backends))
    return found or [Finding("rights", f"{who} may do all that a launcher does")]


def _install_rights(namespace: str, account: str, *, queued: bool = False) -> str:
    """Returns the command that gives a launcher's account its rights in a namespace."""
    suffix = "-queued" if queued else ""
    if namespace == _KFP_NAMESPACE:
        return f"{_INSTALL}{suffix}"
    overlay = "standalone" if account == _KFP_ACCOUNT else "multi-user"
    shipped = {"standalone": _KFP_NAMESPACE, "multi-user": _PROFILE}[overlay]
    return (
        f"kubectl kustomize {_OVERLAYS}/{overlay}{suffix}/launcher"
        f" | sed 's/namespace: {shipped}/namespace: {namespace}/'"
        " | kubectl apply --server-side -f -"
    )


def _kueue(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    queue = pods.queue
    if cluster.queues is None:
        if queue:
            seen = "not installed, so no queue holds jobs back"
            return [Finding("Kueue", seen, "leave out --queue")]
        return [Finding("Kueue", "not installed; jobs start at once")]
    if not cluster.queues_readable:
        return [Finding("Kueue", _UNREADABLE)]
    names = ", ".join(cluster.queues) or "none"
    if queue and queue not in cluster.queues:
        seen = f"no queue {queue} in the namespace; it has: {names}"
        return [Finding("Kueue", seen, "kubectl get localqueues", CLUSTER)]
    for name, problem in cluster.queues.items():
        if problem:
            remedy = f"kubectl describe localqueue {name} -n {cluster.namespace}"
            seen = f"{name} admits no job: {problem}"
            return [Finding("Kueue", seen, remedy, CLUSTER if name == queue else ())]
    return [Finding("Kueue", f"queues of the namespace: {names}")]


def _quotas(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    if cluster.quotas is None:
        return [Finding("quotas", _UNREADABLE)]
    need = _needs(pods)
    limited = _default_limits(cluster.limit_ranges or ())
    found = []
    for quota in cluster.quotas:
        # Whether a scope takes in our pods, the server alone knows for sure.
        if quota.get("spec", {}).get("scopes") or quota.get("spec", {}).get("scopeSelector"):
            continue
        found += _quota(quota, need, limited)
    return found or [Finding("quotas", "leave room for a node" if cluster.quotas else "none")]


def _quota(quota: Manifest, need: Mapping[str, Decimal], limited: frozenset[str]) -> list[Finding]:
    """Returns what in one ResourceQuota refuses a node."""
    name = quota["metadata"]["name"]
    check = f"quota {name}"
    hard = quota.get("spec", {}).get("hard", {})
    used = quota.get("status", {}).get("used", {})
    found = []
    for resource, text in hard.items():
        kind, _, what = resource.rpartition(".")
        if kind == "limits" and resource not in need and what not in limited:
            seen = f"admits no pod without a limit on {what}"
            found.append(Finding(check, seen, f"give --{what}, which sets it", CLUSTER))
            continue
        asked = need.get(resource, Decimal(0))
        most = quantities.amount(text) or Decimal(0)
        taken = quantities.amount(str(used.get(resource, "0"))) or Decimal(0)
        if asked and taken + asked > most:
            seen = f"{resource}: {used.get(resource, '0')} of {text} are used, a node asks for"
            seen += f" {_shown(asked)}"
            look = f"kubectl describe quota {name}"
            found.append(Finding(check, seen, look, CLUSTER))
    return found


def _needs(pods: Pods) -> dict[str, Decimal]:
    """Returns what a job of one node takes of quotas, by the names that they use."""
    asked = resources(pods.resources, {"requests": DEFAULT_REQUESTS})
    need = {"pods": Decimal(1), "count/pods": Decimal(1), "count/jobs.batch": Decimal(1)}
    for kind in ("requests", "limits"):
        for name, text in asked.get(kind, {}).items():
            amount = quantities.amount(text) or Decimal(0)
            need[f"{kind}.{name}"] = amount
            if kind == "requests":
                need[name] = amount
    return need


def _default_limits(ranges: Iterable[Manifest]) -> frozenset[str]:
    """Returns the resources for which a LimitRange gives a limit to containers without one."""
    return frozenset(
        name
        for item in ranges
        for rule in item.get("spec", {}).get("limits", ())
        if rule.get("type") == "Container"
        for name in {**rule.get("default", {}), **rule.get("max", {})}
    )


def _limit_ranges(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    if cluster.limit_ranges is None:
        return [Finding("limit ranges", _UNREADABLE)]
    asked = resources(pods.resources, {"requests": DEFAULT_REQUESTS})["requests"]
    found = []
    for item in cluster.limit_ranges:
        name = item["metadata"]["name"]
        for rule in item.get("spec", {}).get("limits", ()):
            if rule.get("type") in ("Container", "Pod"):
                found += _limit(name, rule, asked)
    return found or [
        Finding("limit ranges", "admit a node" if cluster.limit_ranges else "none"),
    ]


def _limit(name: str, rule: Manifest, asked: Mapping[str, str]) -> list[Finding]:
    found = []
    for resource, text in asked.items():
        amount = quantities.amount(text) or Decimal(0)
        # A container without a limit gets the default one, which its request must not exceed.
        most = rule.get("default", {}).get(resource) or rule.get("max", {}).get(resource)
        least = rule.get("min", {}).get(resource)
        if most and amount > (quantities.amount(most) or 0):
            seen = f"admits at most {resource} {most}, a node asks for {text}"
            remedy = f"give --{resource} {most}"
            found.append(Finding(f"limit range {name}", seen, remedy, CLUSTER))
        elif least and amount < (quantities.amount(least) or 0):
            seen = f"admits no less than {resource} {least}, a node asks for {text}"
            remedy = f"give --{resource} {least}"
            found.append(Finding(f"limit range {name}", seen, remedy, CLUSTER))
    return found


def _pod_security(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    if cluster.namespace_labels is None:
        return [Finding("pod security", _UNREADABLE)]
    level = _level(cluster)
    made = pod_template(pods, flavor(pods), labels={}, container={})["spec"]
    refused = refusal(made, level)
    if refused:
        seen = f"{level}, which refuses our pods: {refused}"
        remedy = f"change that, or: kubectl label namespace {cluster.namespace} {ENFORCED}-"
        return [Finding("pod security", seen, remedy, CLUSTER)]
    return [Finding("pod security", f"{level}, which admits our pods")]


def _level(cluster: ClusterFacts) -> str:
    return (cluster.namespace_labels or {}).get(ENFORCED, PRIVILEGED)


def _network_policy(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    check = "network policy"
    if cluster.policies is None:
        return [Finding(check, _UNREADABLE)]
    if cluster.policies:
        return [Finding(check, "only training pods reach training pods")]
    install = _install_rights(cluster.namespace, cluster.account)
    return [Finding(check, "none, so every pod of the cluster reaches training pods", install)]


def _versions(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    """Returns what was installed by another version, and is not this one's or not renewed."""
    found = []
    for kind, name, version in cluster.installed:
        if version == __version__ or name in map(shipped_name, FLAVORS):  # those are looked into
            continue
        if name in _SHIPPED:
            seen = f"{name} is of version {version}, this is {__version__}"
            remedy = _INSTALL
            if not kind.startswith("cluster"):
                remedy = _install_rights(cluster.namespace, cluster.account)
        else:
            seen = f"{name} is left from version {version}: {__version__} has none of that name"
            where = "" if kind.startswith("cluster") else f" -n {cluster.namespace}"
            remedy = f"kubectl delete {kind} {name}{where}"
        found.append(Finding(f"installed {kind}", seen, remedy))
    return found


def _pipelines(cluster: ClusterFacts, pods: Pods) -> list[Finding]:
    if not cluster.kfp_retries:
        return []
    # Seen with KFP 2.17: 81 tries, each with a new identity.
    seen = "its Argo retries steps that end in an error, so a job that was done may train again"
    remedy = (
        "kubectl -n kubeflow edit configmap workflow-controller-configmap, and take retryStrategy"
        " out of workflowDefaults"
    )
    return [Finding("Kubeflow Pipelines", seen, remedy)]


def _shown(amount: Decimal) -> str:
    for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
        if amount >= size and amount % size == 0:
            return f"{amount // size}{unit}"
    return f"{amount:f}"


CHECKS = (
    _server,
    _trainer,
    _jobset,
    _runtimes,
    _rights,
    _kueue,
    _quotas,
    _limit_ranges,
    _pod_security,
    _network_policy,
    _versions,
    _pipelines,
)
