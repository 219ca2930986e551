"""The entry of `promote_if_better`."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kfp import dsl

from kfp_jax import storage
from kfp_jax.entry.task import errors_end_the_step, launch_job, log_metrics, task_folder
from kfp_jax.errors import SpecError
from kfp_jax.production import Decision, InProduction, ProductionFolder, data_key, decide
from kfp_jax.spec import TrainSpec
from kfp_jax.task_config import job_settings

# Each time somebody else was faster; more often than this is no coincidence.
_MAX_TIMES = 20


@dataclass(frozen=True)
class PromoteOutputs:
    """The output artifacts of `promote_if_better`."""

    lineage: dsl.Artifact
    metrics: dsl.Metrics


def promote_if_better(
    outputs: PromoteOutputs,
    *,
    model: dsl.Model,
    score: float,
    dataset_uri: str,
    production: str,
    min_score: float,
    min_gain: float,
    run_id: str,
    task_config: dsl.TaskConfig,
    pods: Mapping[str, Any],
    backend: str,
) -> bool:
    """Runs the `promote_if_better` component. Returns whether the model is in production now."""
    with errors_end_the_step("promote-if-better"):
        if min_gain < 0:
            raise SpecError(f"min_gain is {min_gain}; give 0 or more.")
        folder = ProductionFolder(production)
        settings = job_settings(task_config, pods)
        evaluation = TrainSpec(
            name="rescore",
            program="kfp_jax_runtime.evaluate",
            output_uri=str(Path(task_folder(outputs.metrics)) / "rescore"),
            dataset_uri=dataset_uri,
            objective="accuracy",
            pods=settings.pods,
            env=settings.env,
        )
        candidate = InProduction(
            version=1,
            model="",
            model_uri=str(model.uri),
            score=score,
            data=data_key(dataset_uri),
            run=run_id,
            promoted_at="",
        )
        contest = _Contest(folder, candidate, evaluation, backend, outputs.metrics)
        decision, now, before = contest.hold(Path(model.path), min_score, min_gain)
        verb = "is promoted" if decision.promote else "is not promoted"
        sys.stdout.write(f"The model {verb}: {decision.why}.\n")
        said = {"promoted": decision.promote, "why": decision.why, "run": run_id, "score": score}
        current = asdict(now) if now else None
        storage.write_json(Path(outputs.lineage.path), {**said, "in_production": current})
        outputs.lineage.metadata.update(
            {**said, "version": now.version if now else 0, "replaced": before or {}}
        )
        values = {"score": score, "promoted": float(decision.promote)}
        if before:
            values["production_score"] = before["score"]
        log_metrics(outputs.metrics, values)
        return decision.promote


@dataclass(frozen=True)
class _Contest:
    """A candidate against whatever is in production."""

    folder: ProductionFolder
    candidate: InProduction
    evaluation: TrainSpec
    backend: str
    output: dsl.Artifact

    def hold(
        self, model: Path, min_score: float, min_gain: float
    ) -> tuple[Decision, InProduction | None, dict[str, Any] | None]:
        """Returns the decision, what is in production then, and what was before, with its score."""
        brought = ""
        for _ in range(_MAX_TIMES):
            current = self.folder.current()
            mine = (current.run, current.model_uri) if current else None
            if current and mine == (self.candidate.run, self.candidate.model_uri):
                why = f"it is in production already, as version {current.version}"
                return Decision(True, why), current, None
            before = self._before(current)
            decision = decide(
                self.candidate.score, before["score"] if before else None, min_score, min_gain
            )
            if not decision.promote:
                if brought:
                    self.folder.drop(brought)
                return decision, current, before
            brought = brought or self.folder.bring(
                model, self.candidate.model_uri, self.candidate.run
            )
            to = replace(
                self.candidate,
                version=(current.version if current else 0) + 1,
                model=brought,
                promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
                replaced=before,
            )
            if self.folder.move(to):
                return decision, to, before
            sys.stdout.write("Another run promoted a model meanwhile; compared with that again.\n")
        raise SpecError(
            f"production {self.folder.path} changes faster than a model can be compared with it;"
            " let fewer runs promote there."
        )

    def _before(self, current: InProduction | None) -> dict[str, Any] | None:
        """Returns what lineage keeps of the model in production, with its score on these data."""
        if current is None:
            return None
        kept = {"version": current.version, "run": current.run, "model_uri": current.model_uri}
        if current.data and current.data == self.candidate.data:
            return {**kept, "score": current.score}
        sys.stdout.write(
            f"Version {current.version} was scored on other examples; it is scored on these.\n"
        )
        spec = replace(
            self.evaluation,
            parameters={"model": str(self.folder.path / current.model), "split": "test"},
            output_uri=f"{self.evaluation.output_uri}-{current.version}",
        )
        outcome = launch_job(spec, self.backend, self.output)
        return {**kept, "score": outcome.metrics["accuracy"], "score_then": current.score}
