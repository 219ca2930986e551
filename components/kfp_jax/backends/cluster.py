"""What both cluster backends share: start or adopt, follow, end and find a job on an API server."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kfp_jax import storage
from kfp_jax.backends.adoption import Verdict, judge
from kfp_jax.backends.base import JobRef, LogLine, never
from kfp_jax.backends.observer import Objects, Observer
from kfp_jax.backends.pod_status import JOBSET_NAME, Manifest, Pod
from kfp_jax.backends.study_watch import StudyWatch
from kfp_jax.errors import ClusterError, Conflict, Forbidden, NotFound, Rejected, SpecError, Unheard
from kfp_jax.kube.client import Client
from kfp_jax.kube.logs import Label, LogFollower
from kfp_jax.kube.requests import PODS, Resource
from kfp_jax.kube.resources import CLAIMS, EVENTS, SERVICES
from kfp_jax.kube.stop import Stop
from kfp_jax.kube.watch import Added, Deleted, Listed, Modified, Target, watch
from kfp_jax.manifests.claims import on_claims
from kfp_jax.manifests.environment import NODE
from kfp_jax.manifests.identity import JOB_LABEL, STUDY, Identity, Owner, label
from kfp_jax.manifests.pod import is_on_volume, warnings
from kfp_jax.manifests.rights import QUEUE
from kfp_jax.names import attempt_of, job_name, label_value, next_attempt
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus

# Kubernetes gives a pod 30 s to save and leave unless its spec says otherwise.
GONE_SECONDS = 60.0
# How long `submit` builds on what `validate` saw: launchers call the one right after the other.
_FRESH_SECONDS = 5.0
# For what waits for a process that has failed; 0 would not wait for the machine's word.
STRANDED_SECONDS = 1
_NAMES_TRIED = 100


@dataclass(frozen=True)
class _Seen:
    """What there was before a job is made.

    Attributes:
        base: What the job is made from.
        job: What has its name already, or None.
        others: What else has that name, and is needed under it.
        pods: Whether there are pods of that name.
        at: When this was seen.
    """

    base: Manifest
    job: Manifest | None
    others: Mapping[Resource, Manifest]
    pods: bool
    at: float

    def is_believed(self, now: float) -> bool:
        """Returns whether a submit may go by this without another look.

        Only that nothing was there: a create finds out whether that still holds, while a job may
        have ended, or been replaced, since.
        """
        there = self.job is not None or self.others or self.pods
        return not there and now - self.at <= _FRESH_SECONDS


def refused(error: Rejected) -> SpecError:
    """Returns what a dry run's refusal is for the user: nothing was made, and they can mend it."""
    return SpecError(str(error))


class ClusterBackend(ABC):
    """Jobs as objects on an API server.

    A job is adopted by its name, its labels and the hash of its spec, all of which follow from the
    spec: so a launcher may be killed at any moment, and the one after it finds what there is.
    """

    name: str
    job: Resource  # what `submit` creates
    watched: tuple[Resource, ...]  # what has the job's name and tells how it stands
    propagation: str  # whether the job goes before what it owns, "Background", or after

    def __init__(
        self,
        client: Client,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Makes a backend; nothing is sent yet.

        Args:
            client: To the API server.
            namespace: Where the jobs are; by default the client's.
            labels: What the jobs belong to: run, task, study, trial -> any text. Those of a study
                are watched together.
            owner: What the jobs are deleted with, an object of the client's own namespace.
        """
        self._client = client
        self._namespace = namespace or client.namespace
        self._labels = dict(labels or {})
        # An owner in another namespace is one that is not there: the job would be deleted at once.
        self._owner = owner if self._namespace == client.namespace else None
        self._observers: dict[str, Observer] = {}
        self._hears = True  # until `validate` finds that logs may not be read
        self._study = self._study_watch()
        # By `validate`, of a name and a spec's hash, for the `submit` that follows.
        self._seen: dict[tuple[str, str], _Seen] = {}

    @property
    def where(self) -> str:
        """The kind of the jobs, and their namespace."""
        return f"{self.name} in namespace {self._namespace}"

    def validate(self, spec: TrainSpec, cancelled: Callable[[], bool] = never) -> list[str]:
        """Asks the server, which stores nothing, whether it would take the job."""
        del cancelled  # nothing here takes long
        identity = self._first_identity(spec)
        spec = on_claims(spec)
        with ThreadPoolExecutor(4) as pool:  # the dry run takes longest
            rights = pool.submit(self._check_rights)
            claims = pool.submit(self._check_claims, spec)
            queue = pool.submit(self._check_queue, spec)
            base = self._read_base(spec, identity)
            seen = pool.submit(self._look, identity, base)
            found = [*self._check(spec, identity, base)]
        self._seen[identity.name, spec.hash()] = seen.result()
        told = (rights, claims, queue)
        return [*found, *(line for check in told for line in check.result()), *warnings(spec)]

    def _check_queue(self, spec: TrainSpec) -> list[str]:
        """Returns a warning if nothing on the cluster knows of the job's queue."""
        queue = spec.pods.queue
        if not queue or self._client.versions(QUEUE.group):
            return []
        return [
            f"This cluster has no Kueue, so the job does not wait in queue {queue} but starts at"
            " once; have Kueue installed, or leave queue empty."
        ]

    def _check_claims(self, spec: TrainSpec) -> list[str]:
        """Returns a warning for each claim that is not there, or that not all nodes can mount."""
        names = {
            str(volume.source["persistentVolumeClaim"].get("claimName")): volume.name
            for volume in spec.pods.volumes
            if "persistentVolumeClaim" in volume.source
        }
        found = []
        for name, volume in names.items():
            with suppress(Forbidden):
                claim = self._get(CLAIMS, name)
                if claim is None:
                    found.append(
                        f"Volume {volume} is the claim {name}, which is not in namespace"
                        f" {self._namespace}: the nodes do not start before it is; make it, or"
                        " name another."
                    )
                    continue
                modes = claim["spec"].get("accessModes", ())
                if spec.num_nodes > 1 and not {"ReadWriteMany", "ReadOnlyMany"} & {*modes}:
                    found.append(
                        f"Volume {volume} is the claim {name} with access mode {', '.join(modes)}:"
                        f" {spec.num_nodes} nodes start only if all are on one machine; use one"
                        " with ReadWriteMany."
                    )
        return found

    def _check_rights(self) -> list[str]:
        """Returns a warning for each right that a job runs without.

        Raises:
            Forbidden: It would not run.
        """
        known = self._client.rights(self._namespace)

        def may(verb: str, resource: Resource, subresource: str = "") -> bool:
            return known.allow(verb, resource, subresource) or self._client.may(
                verb, resource, self._namespace, subresource=subresource
            )

        for verb, resource, subresource in self._rights():
            if not may(verb, resource, subresource):
                what = f"{resource}/{subresource}" if subresource else str(resource)
                raise Forbidden(
                    f"This account may not {verb} {what} in namespace {self._namespace}; have it"
                    " bound to the Role kfp-jax-launcher of runtimes/manifests."
                )
        found = []
        self._hears = may("get", PODS, "log")
        if not self._hears:
            found.append(
                f"This account may not get pods/log in namespace {self._namespace}: what the job"
                " writes will not be seen, so there are no metrics, model or last lines in its"
                " result, its objective is not checked and a stall not noticed."
            )
        if not may("list", EVENTS):
            found.append(
                f"This account may not list events in namespace {self._namespace}: why a job has no"
                " pods will not be told."
            )
        return found

    @abstractmethod
    def render(self, spec: TrainSpec, ref: JobRef) -> list[dict[str, Any]]:
        """Returns what `submit` would create on a server that has what we know of. Pure."""

    def submit(self, spec: TrainSpec, ref: JobRef) -> JobRef:
        """Creates the job, or adopts the one that the same spec made; a used name gives the next.

        Raises:
            Conflict: A job of that name with another spec runs, or somebody else's has the name.
            Rejected: The server refuses the job.
        """
        spec = on_claims(spec)
        name = ref.name
        for _ in range(_NAMES_TRIED):
            identity = self._identity(name)
            job = self._obtain(spec, identity)
            if job is not None:
                self._observe(job, renews=True)
                return self._ref(job)
            name = next_attempt(name)
        raise Conflict(
            f"Job {ref.name} and the {_NAMES_TRIED - 1} attempts after it are there; delete them."
        )

    def watch(self, ref: JobRef) -> Iterator[JobStatus]:
        """Yields the status now, at each change and twice a second."""
        return self._observer(ref).statuses()

    def logs(self, ref: JobRef) -> Iterator[LogLine]:
        """Yields the lines of all processes; what a pod that is gone wrote cannot be read."""
        return self._logs(self._observer(ref))

    def _logs(self, observer: Observer) -> Iterator[LogLine]:
        if not self._hears:
            raise Unheard(f"This account may not get pods/log in namespace {self._namespace}.")
        first = attempt_of(observer.name)

        def whose(manifest: Manifest) -> Label | None:
            pod = Pod(manifest)
            return None if pod.process is None else Label(pod.process, first + pod.restart)

        selector = f"{JOBSET_NAME}={observer.name}"
        follower = LogFollower(
            self._client, self._namespace, selector, NODE, whose, pods=observer.pod_events
        )
        observer.at_end(follower.finish)
        try:
            for line in follower.lines():
                yield LogLine(*line)
        finally:
            follower.stop()

    def cancel(self, ref: JobRef) -> None:
        """Deletes the job, if it has not ended; its processes have the pods' grace to save."""
        observer = self._observer(ref)
        if observer.finished:
            return
        observer.cancel()
        self._delete(observer.job)

    def delete(self, ref: JobRef) -> None:
        """Deletes the job and waits until nothing of it runs, for at most a minute."""
        with suppress(NotFound):
            self._end(self._observer(ref))

    def find(self, labels: Mapping[str, str]) -> list[JobRef]:
        """Returns the jobs that carry all these labels: job, run, task, study, trial."""
        wanted = {label(name): label_value(value) for name, value in labels.items()}
        selector = ",".join(f"{name}={value}" for name, value in wanted.items())
        listing = self._client.list(self.job, self._namespace, labels=selector or JOB_LABEL)
        return [self._ref(job) for job in listing.items]

    def close(self) -> None:
        """Looks after no job any more; the jobs run on."""
        while self._observers:
            self._observers.popitem()[1].close()
        if self._study:
            self._study.close()

    def has_on_volume(self, spec: TrainSpec) -> bool:
        """Returns whether the nodes write the job's output to a volume, which others can see too.

        Raises:
            SpecError: The runtime that the job names is not there.
        """
        identity = self._first_identity(spec)
        return is_on_volume(spec.output_uri, self._mount_paths(spec, identity))

    @abstractmethod
    def _mount_paths(self, spec: TrainSpec, identity: Identity) -> Sequence[str]:
        """Returns where the nodes have volumes, as far as this account may know."""

    @abstractmethod
    def _check(self, spec: TrainSpec, identity: Identity, base: Manifest) -> Sequence[str]:
        """Returns warnings about a job that the server would take, or raises; see `_create`."""

    def _read_base(self, spec: TrainSpec, identity: Identity) -> Manifest:
        """Returns what is there already of all that the job is made from, or raises."""
        del spec, identity
        return {}

    @abstractmethod
    def _create(self, spec: TrainSpec, identity: Identity, base: Manifest) -> Manifest:
        """Creates what the job needs and then the job, and returns that.

        Args:
            spec: What to train.
            identity: Who the job is.
            base: What `_read_base` returned.

        Raises:
            Conflict: The job's name is taken.
        """

    @abstractmethod
    def _reduce(self, objects: Objects, pods: Sequence[Pod]) -> JobStatus:
        """Returns how the job of these objects stands. Pure."""

    def _delete(self, job: Manifest) -> None:
        metadata = job["metadata"]
        with suppress(NotFound, Conflict):  # gone, or another has its name
            self._client.delete(
                self.job,
                self._namespace,
                metadata["name"],
                uid=metadata["uid"],
                propagation=self.propagation,
            )

    def _rights(self) -> list[tuple[str, Resource, str]]:
        return [
            ("delete", self.job, ""),
            *(("watch", kind, "") for kind in (*self.watched, PODS)),
        ]

    def _first_identity(self, spec: TrainSpec) -> Identity:
        """Returns who the job is that `launch` submits if nothing was there before."""
        folder = storage.identity(spec.output_uri, "output_uri")
        return self._identity(job_name(spec.name, folder, 1))

    def _identity(self, name: str) -> Identity:
        return Identity(
            name=name,
            namespace=self._namespace,
            attempt=attempt_of(name),
            labels=self._labels,
            owner=self._owner,
        )

    def _ref(self, job: Manifest) -> JobRef:
        metadata = job["metadata"]
        return JobRef(self.name, metadata["name"], metadata["namespace"], metadata["uid"])

    def _observe(self, job: Manifest, *, renews: bool = False) -> Observer:
        mine = label_value(self._labels.get(STUDY, ""))
        of_study = mine and job["metadata"].get("labels", {}).get(label(STUDY)) == mine
        observer = Observer(
            self._client,
            job,
            self.watched,
            self._reduce,
            renews=renews,
            study=self._study if of_study else None,
        )
        before = self._observers.pop(observer.name, None)
        if before:
            before.close()
        self._observers[observer.name] = observer
        return observer

    def _study_watch(self) -> StudyWatch | None:
        study = self._labels.get(STUDY)
        if not study:
            return None
        selector = f"{label(STUDY)}={label_value(study)}"
        return StudyWatch(self._client, self._namespace, (*self.watched, PODS), selector)

    def _observer(self, ref: JobRef) -> Observer:
        observer = self._observers.get(ref.name)
        if observer and ref.uid in ("", observer.uid):
            return observer
        return self._observe(self._client.get(self.job, self._namespace, ref.name))

    def _obtain(self, spec: TrainSpec, identity: Identity) -> Manifest | None:
        """Returns the job of that name, made now or before; None where the name is used up."""
        seen = self._seen.pop((identity.name, spec.hash()), None)
        if seen is None or not seen.is_believed(self._client.clock.now()):
            seen = self._look(identity, self._read_base(spec, identity))
        found = seen.job
        if found is None:
            if _is_used(identity, seen.others) or seen.pods:
                self._wait_for_pods(identity.name)
                return None
            try:
                return self._create(spec, identity, seen.base)
            except Conflict:  # made meanwhile, by a try of ours whose answer was lost, say
                found = self._get(self.job, identity.name)
                if found is None:
                    raise
        return self._judged(found, spec, identity)

    def _look(self, identity: Identity, base: Manifest) -> _Seen:
        """Reads what has a job's name; what may not be read is taken for not there."""
        at = self._client.clock.now()
        around = (*self.watched[1:], SERVICES)
        with ThreadPoolExecutor(len(around) + 1) as pool:  # one after another they would add up
            pods = pool.submit(self._has_pods, identity)
            reading = {kind: pool.submit(self._get, kind, identity.name) for kind in around}
            job = self._get(self.job, identity.name)
        others = {}
        for kind, read in reading.items():
            with suppress(Forbidden):
                if item := read.result():
                    others[kind] = item
        return _Seen(base, job, others, pods.result(), at)

    def _judged(self, found: Manifest, spec: TrainSpec, identity: Identity) -> Manifest | None:
        objects = {kind: self._get(kind, identity.name) for kind in self.watched[1:]}
        present = {kind: item for kind, item in objects.items() if item is not None}
        phase = self._reduce({self.job: found, **present}, ()).phase
        where = f"{self.job} {identity.name} in namespace {self._namespace}"
        match judge(found, phase, identity, spec.hash()):
            case Verdict.ADOPT:
                self._adopt(found)
                return found
            case Verdict.BUSY:
                raise Conflict(
                    f"Job {identity.name} runs with another spec; cancel it or use another output."
                )
            case Verdict.FOREIGN:
                raise Conflict(f"{where} is not of this task; delete it or use another name.")
            case Verdict.NEXT | Verdict.LEAVING:
                self._end(self._observe(found))
                self._wait_for_pods(identity.name)
                return None

    def _wait_for_pods(self, name: str) -> None:
        """Waits until no process of an earlier attempt runs: both would write into one folder.

        Raises:
            Conflict: Some run on.
        """
        running: dict[str, bool] = {}
        target = Target(PODS, self._namespace, labels=f"{JOBSET_NAME}={name}")
        deadline = self._client.clock.now() + GONE_SECONDS
        for event in watch(self._client, target, stop=Stop(), deadline=deadline):
            match event:
                case Listed(pods):
                    running = {pod["metadata"]["uid"]: not Pod(pod).ends for pod in pods}
                case Added(pod) | Modified(pod):
                    running[pod["metadata"]["uid"]] = not Pod(pod).ends
                case Deleted(pod):
                    running.pop(pod["metadata"]["uid"], None)
            if not any(running.values()):
                return
        raise Conflict(
            f"Job {name} is being deleted, but its processes have not ended in {GONE_SECONDS:g} s;"
            " try again later, or look at their machines."
        )

    def _has_pods(self, identity: Identity) -> bool:
        selector = f"{JOBSET_NAME}={identity.name}"
        return bool(self._client.list(PODS, self._namespace, labels=selector).items)

    def _adopt(self, job: Manifest) -> None:  # noqa: B027 - most have nothing to do
        """Does what a launcher that was killed after it had made the job may have left undone."""

    def _end(self, observer: Observer) -> None:
        """Deletes a job and waits until nothing of it runs, for at most a minute."""
        self._observers.pop(observer.name, None)
        try:
            self._delete(observer.job)
            self._end_soon(observer.stranded)
            observer.wait_until_gone(GONE_SECONDS)
        finally:
            observer.close()

    def _end_soon(self, pods: Iterable[Pod]) -> None:
        """Shortens the grace of pods that have nothing to save: they wait for one that is dead."""
        for pod in pods:
            metadata = pod.manifest["metadata"]
            with suppress(ClusterError):  # then they take their time
                self._client.delete(
                    PODS,
                    self._namespace,
                    metadata["name"],
                    uid=metadata["uid"],
                    grace=STRANDED_SECONDS,
                )

    def _get(self, kind: Resource, name: str) -> Manifest | None:
        try:
            return self._client.get(kind, self._namespace, name)
        except NotFound:
            return None


def _is_used(identity: Identity, others: Mapping[Resource, Manifest]) -> bool:
    """Returns whether something of an earlier job of that name is still being removed.

    Raises:
        Conflict: What the job will need the name for is somebody else's.
    """
    for kind, item in others.items():
        metadata = item["metadata"]
        owners = metadata.get("ownerReferences") or ()
        ours = metadata.get("labels", {}).get(JOB_LABEL) == identity.name
        if ours or any(owner["name"] == identity.name for owner in owners):
            return True
        raise Conflict(
            f"{kind} {identity.name} in namespace {identity.namespace} is not of this task, and"
            " the job needs that name; delete it or use another name."
        )
    return False
