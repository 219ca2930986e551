"""Jobs as JobSets, on clusters without Kubeflow Trainer."""

from collections.abc import Sequence
from typing import Any

from kfp_jax.backends.base import JobRef
from kfp_jax.backends.cluster import ClusterBackend, refused
from kfp_jax.backends.jobset_status import reduce_jobset
from kfp_jax.backends.observer import Objects
from kfp_jax.backends.pod_status import Manifest, Pod
from kfp_jax.errors import Conflict, Rejected, SpecError
from kfp_jax.kube.resources import JOBSETS
from kfp_jax.manifests.claims import on_claims
from kfp_jax.manifests.identity import Identity
from kfp_jax.manifests.jobset import jobset, mount_paths
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus


class JobSetBackend(ClusterBackend):
    """Needs the JobSet controller and nothing else."""

    name = "jobset"
    job = JOBSETS
    watched = (JOBSETS,)
    propagation = "Foreground"  # its name is not free before its pods are gone

    def render(self, spec: TrainSpec, ref: JobRef) -> list[dict[str, Any]]:
        """Returns the JobSet."""
        return [jobset(on_claims(spec), self._identity(ref.name))]

    def _mount_paths(self, spec: TrainSpec, identity: Identity) -> Sequence[str]:
        return mount_paths(spec, identity)

    def _check(self, spec: TrainSpec, identity: Identity, base: Manifest) -> Sequence[str]:
        if not self._client.serves(JOBSETS):
            raise SpecError(
                "This cluster has no JobSets; have JobSet installed, or choose the backend local."
            )
        try:
            self._client.create(JOBSETS, self._namespace, jobset(spec, identity), dry_run=True)
        except Conflict:
            pass  # `submit` finds out whose it is
        except Rejected as error:
            raise refused(error) from error
        return []

    def _create(self, spec: TrainSpec, identity: Identity, base: Manifest) -> Manifest:
        return self._client.create(JOBSETS, self._namespace, jobset(spec, identity))

    def _reduce(self, objects: Objects, pods: Sequence[Pod]) -> JobStatus:
        return reduce_jobset(objects[JOBSETS], pods)
