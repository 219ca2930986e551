"""Jobs as TrainJobs of Kubeflow Trainer 2.2 or newer."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from kfp_jax.backends.adoption import is_ours
from kfp_jax.backends.base import JobRef
from kfp_jax.backends.cluster import ClusterBackend, refused
from kfp_jax.backends.observer import Objects
from kfp_jax.backends.pod_status import Manifest, Pod
from kfp_jax.backends.trainjob_status import reduce_trainjob
from kfp_jax.errors import ClusterError, Conflict, Forbidden, NotFound, Rejected, SpecError
from kfp_jax.kube.client import Client
from kfp_jax.kube.resources import CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS
from kfp_jax.manifests.claims import on_claims
from kfp_jax.manifests.dialect import Dialect, dialect_of_schema, schema_fields
from kfp_jax.manifests.identity import SPEC_HASH, Identity, Owner, owner_reference
from kfp_jax.manifests.runtime import (
    FRAMEWORK,
    NAMESPACED_KIND,
    RuntimeRef,
    assumed_runtime,
    lost,
    own_runtime,
    ref_of,
    runtime_ref,
)
from kfp_jax.manifests.trainjob import mount_paths, trainjob
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus

_JAX = ",".join(f"{name}={value}" for name, value in FRAMEWORK.items())

# How far the informers of Trainer's webhook may be behind the API server.
_HEARSAY_SECONDS = 5.0
_HEARSAY_PAUSE = 0.1


class TrainerBackend(ClusterBackend):
    """Uses an installed runtime where one can express the job, else brings one of its own."""

    name = "trainer"
    job = TRAINJOBS
    watched = (TRAINJOBS, JOBSETS)
    # Trainer makes a JobSet that is gone anew as long as the TrainJob is there, also for one that
    # is being deleted: so the TrainJob goes first.
    propagation = "Background"

    def render(self, spec: TrainSpec, ref: JobRef) -> list[dict[str, Any]]:
        """Returns the TrainJob, after its runtime if it brings one; for the newest Trainer."""
        spec = on_claims(spec)
        identity = self._identity(ref.name)
        installed = runtime_ref(spec)
        runtime = assumed_runtime(installed) if installed else own_runtime(spec, identity)
        made = trainjob(spec, identity, runtime=runtime, dialect=Dialect.V2_3)
        return [made] if installed else [runtime, made]

    @cached_property
    def dialect(self) -> Dialect:
        """What the server's TrainJobs are like.

        Raises:
            SpecError: It has none, or too old ones.
        """
        return trainer_dialect(self._client)

    def check_served(self) -> None:
        """Refuses a server on which no TrainJob of ours could work.

        Raises:
            SpecError: It has no TrainJobs, or too old ones.
        """
        _ = self.dialect

    def _mount_paths(self, spec: TrainSpec, identity: Identity) -> Sequence[str]:
        return mount_paths(spec, self._read_base(spec, identity))

    def _check(self, spec: TrainSpec, identity: Identity, base: Manifest) -> Sequence[str]:
        made = trainjob(spec, identity, runtime=base, dialect=self.dialect)
        # A TrainJob is refused as long as its runtime is not there, and nothing is made here.
        kind, manifest = (RUNTIMES, base) if _is_own(base, identity) else (TRAINJOBS, made)
        try:
            self._client.create(kind, self._namespace, manifest, dry_run=True)
        except Conflict:
            pass  # `submit` finds out whose it is
        except Rejected as error:
            raise refused(error) from error
        return lost(spec, base)

    def _create(self, spec: TrainSpec, identity: Identity, base: Manifest) -> Manifest:
        made = trainjob(spec, identity, runtime=base, dialect=self.dialect)
        if not _is_own(base, identity):
            return self._client.create(TRAINJOBS, self._namespace, made)
        self._create_runtime(base, identity)
        try:
            job = self._create_beside_runtime(made, identity)
        except Rejected:
            self._client.delete(RUNTIMES, self._namespace, identity.name)
            raise
        self._adopt(job)
        return job

    def _create_beside_runtime(self, made: Manifest, identity: Identity) -> Manifest:
        """Creates a job; Trainer's webhook may not have heard yet of the runtime made for it."""
        clock = self._client.clock
        end = clock.now() + _HEARSAY_SECONDS
        while True:
            try:
                return self._client.create(TRAINJOBS, self._namespace, made)
            except Rejected as error:
                unheard = f'"{identity.name}" not found' in str(error)
                if not unheard or clock.now() >= end:
                    raise
            clock.sleep(_HEARSAY_PAUSE)

    def _adopt(self, job: Manifest) -> None:
        """Has the job's own runtime go with the job."""
        if not _brings_runtime(job):
            return
        metadata = job["metadata"]
        owner = Owner(job["apiVersion"], job["kind"], metadata["name"], metadata["uid"])
        owners = [*(metadata.get("ownerReferences") or ()), owner_reference(owner)]
        with suppress(ClusterError):  # `delete` removes the runtime too
            self._client.patch(
                RUNTIMES,
                self._namespace,
                metadata["name"],
                {"metadata": {"ownerReferences": owners}},
            )

    def _delete(self, job: Manifest) -> None:
        super()._delete(job)
        if _brings_runtime(job):  # it goes with the job only if it came to know its owner
            with suppress(NotFound, Forbidden):
                self._client.delete(RUNTIMES, self._namespace, job["metadata"]["name"])

    def _reduce(self, objects: Objects, pods: Sequence[Pod]) -> JobStatus:
        return reduce_trainjob(objects[TRAINJOBS], objects.get(JOBSETS), pods)

    def _read_base(self, spec: TrainSpec, identity: Identity) -> Manifest:
        """Returns the runtime that the job refers to; its own where none that is there will do.

        Raises:
            SpecError: The server has no TrainJobs that would do, or not the runtime that the user
                names, or that one cannot express the job.
        """
        self.check_served()
        ref = runtime_ref(spec)
        if ref is None:
            return own_runtime(spec, identity)
        try:
            if ref.kind == NAMESPACED_KIND:
                return self._client.get(RUNTIMES, self._namespace, ref.name)
            return self._client.get(CLUSTER_RUNTIMES, "", ref.name)
        except Forbidden:
            return assumed_runtime(ref) if spec.pods.runtime else own_runtime(spec, identity)
        except NotFound as error:
            if not spec.pods.runtime:
                return own_runtime(spec, identity)
            raise SpecError(
                f"runtime {spec.pods.runtime} is not on this cluster{self._installed()}; have it"
                " installed, or leave runtime empty."
            ) from error

    def _installed(self) -> str:
        try:
            found = self._client.list(CLUSTER_RUNTIMES, "", labels=_JAX)
        except Forbidden:
            return ""
        names = ", ".join(item["metadata"]["name"] for item in found.items)
        return f", which has {names}" if names else ", which has no JAX runtime"

    def _create_runtime(self, runtime: Manifest, identity: Identity) -> None:
        """Creates the job's own runtime, in place of one that a launcher left without its job."""
        try:
            self._client.create(RUNTIMES, self._namespace, runtime)
        except Conflict:
            found = self._client.get(RUNTIMES, self._namespace, identity.name)
            if not is_ours(found, identity):
                raise
            hashes = [item["metadata"]["annotations"][SPEC_HASH] for item in (found, runtime)]
            if hashes[0] != hashes[1]:
                uid = found["metadata"]["uid"]
                self._client.delete(RUNTIMES, self._namespace, identity.name, uid=uid)
                self._client.create(RUNTIMES, self._namespace, runtime)


def trainer_dialect(client: Client) -> Dialect:
    """Returns what a server's TrainJobs are like.

    Raises:
        SpecError: It has none, or too old ones.
    """
    if not client.serves(TRAINJOBS):
        raise SpecError(
            "This cluster has no TrainJobs; have Kubeflow Trainer 2.2 or newer installed, or choose"
            " the backend jobset."
        )
    document = client.openapi(TRAINJOBS.group, TRAINJOBS.version)
    return dialect_of_schema(schema_fields(document, "TrainJob"))


def _is_own(runtime: Manifest, identity: Identity) -> bool:
    return ref_of(runtime) == RuntimeRef(NAMESPACED_KIND, identity.name)


def _brings_runtime(job: Manifest) -> bool:
    """Returns whether a TrainJob's runtime was made for it alone."""
    ref = job["spec"]["runtimeRef"]
    return (ref.get("kind"), ref["name"]) == (NAMESPACED_KIND, job["metadata"]["name"])
