"""The trials of a sweep in ConfigMaps: what is left of a launcher whose pod is gone."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kfp_jax.errors import Conflict, NotFound, SpecError
from kfp_jax.kube.resources import CONFIG_MAPS
from kfp_jax.manifests.identity import (
    MANAGED_BY,
    PREFIX,
    STUDY,
    Owner,
    label,
    owner_reference,
)
from kfp_jax.names import label_value
from kfp_jax.sweep.trial import Trial

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client

# An object takes 1 MiB; a trial of a dozen parameters about 1 KB.
_TRIALS_IN_ONE = 400
_CURVE_POINTS = 12
_MESSAGE = 400
_IDENTITY = f"{PREFIX}/sweep"


@dataclass(frozen=True)
class ConfigMapJournal:
    """Trials as entries of ConfigMaps `STUDY-0`, `STUDY-1`, ..., which go with the run.

    Of a trial's curve and message so much is kept as the leaderboard needs.

    Attributes:
        client: To the cluster.
        namespace: Where the jobs are.
        study: What the sweep's jobs have in common.
        identity: Of the sweep; another sweep does not go on with its trials.
        labels: Of the run.
        owner: What the ConfigMaps are deleted with, or None.
    """

    client: "Client"
    namespace: str
    study: str
    identity: str
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None

    def read(self) -> list[Trial]:
        """Returns the trials.

        Raises:
            SpecError: They are another sweep's.
            ClusterError: The server refused or did not answer.
        """
        trials: list[Trial] = []
        with suppress(NotFound):
            while True:
                found = self.client.get(CONFIG_MAPS, self.namespace, self._name(len(trials)))
                self._check(found)
                data = found.get("data") or {}
                trials += (Trial.from_json(json.loads(data[number])) for number in sorted(data))
                if len(data) < _TRIALS_IN_ONE:
                    break
        return trials

    def write(self, trial: Trial) -> None:
        """Writes a trial.

        Raises:
            ClusterError: The server refused or did not answer.
        """
        name = self._name(trial.number)
        data = {f"{trial.number:06d}": json.dumps(_shortened(trial).to_json())}
        try:
            self.client.patch(CONFIG_MAPS, self.namespace, name, {"data": data})
        except NotFound:
            try:
                self.client.create(CONFIG_MAPS, self.namespace, self._manifest(name, data))
            except Conflict:  # made by a try of ours whose answer was lost
                self.client.patch(CONFIG_MAPS, self.namespace, name, {"data": data})

    def _name(self, number: int) -> str:
        return f"{self.study}-{number // _TRIALS_IN_ONE}"

    def _manifest(self, name: str, data: Mapping[str, str]) -> dict[str, Any]:
        labels = {label(key): label_value(value) for key, value in self.labels.items() if value}
        metadata: dict[str, Any] = {
            "name": name,
            "labels": {**labels, label(STUDY): label_value(self.study), MANAGED_BY: PREFIX},
            "annotations": {_IDENTITY: self.identity},
        }
        if self.owner:
            metadata["ownerReferences"] = [owner_reference(self.owner)]
        return {"metadata": metadata, "data": dict(data)}

    def _check(self, found: Mapping[str, Any]) -> None:
        metadata = found["metadata"]
        if metadata.get("annotations", {}).get(_IDENTITY) != self.identity:
            raise SpecError(
                f"ConfigMap {metadata['name']} in namespace {self.namespace} holds another sweep of"
                " this step; delete it, or undo what was changed."
            )


def _shortened(trial: Trial) -> Trial:
    curve = trial.curve
    if len(curve) > _CURVE_POINTS:
        step = (len(curve) - 1) / (_CURVE_POINTS - 1)
        curve = tuple(curve[round(index * step)] for index in range(_CURVE_POINTS))
    return replace(trial, curve=curve, message=trial.message[:_MESSAGE])
