"""Jobs on this machine by warm workers: processes that run many jobs, one after another."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from kfp_jax.backends.local import GRACE_SECONDS, LocalBackend, refusal
from kfp_jax.backends.local_job import Attempt, LogFile, ProcessesAttempt
from kfp_jax.backends.local_process import cores_of, defaults, node_env
from kfp_jax.backends.turns import Turns, WaitingAttempt
from kfp_jax.backends.warm_worker import Key, WarmAttempt, Worker
from kfp_jax.clock import Clock
from kfp_jax.spec import RESERVED_ENV, TrainSpec, parameters_json


class WarmBackend(LocalBackend):
    """The local backend for many short jobs, such as the trials of a sweep.

    Jobs of one program in one process are run by workers, each on cores of its own, that have
    imported the program, read its data and compiled its functions for the jobs before. A job that
    ends its worker, whatever way, costs no other job anything: the next one gets a new worker.
    Jobs of a command or of several processes get processes of their own, as ever.

    No more jobs run at once than there are workers, and one of several processes runs alone; the
    others are QUEUED, in the order of their submission. A worker serves one program with one set
    of variables; a job with others gets a new worker, so that none is read too late.

    Use it as a context manager: leaving it ends the workers. When this process ends, by SIGKILL
    too, they end as well.

    Args:
        workers: How many; by default, one for each core.
        environ: What the processes inherit; by default, this process's variables.
        clock: Time.
        grace: Seconds to save and leave after a cancel.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        super().__init__(environ=environ, clock=clock, grace=grace)
        self._size = workers or len(os.sched_getaffinity(0))
        self._turns = Turns(self._size)
        self._workers: dict[int, Worker] = {}  # whoever has the turn of a place owns its worker
        self._folder = TemporaryDirectory(prefix="kfp-jax-workers-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all jobs and all workers."""
        for ref in self.find({}):
            self.delete(ref)
        workers = list(self._workers.values())
        self._workers.clear()
        for worker in workers:
            worker.retire()
        for worker in workers:
            worker.close()
        self._folder.cleanup()

    def _attempt(self, spec: TrainSpec, job: str, files: Sequence[LogFile]) -> Attempt:
        if spec.command or spec.num_nodes > 1:
            places = 1 if spec.num_nodes == 1 else self._size
            own = functools.partial(ProcessesAttempt, spec, job, self._environ, files)
            return WaitingAttempt(self._turns, places, "", lambda places: own(), files)
        key = self._key(spec)
        warm = functools.partial(self._warm_attempt, spec, key, job, files)
        return WaitingAttempt(self._turns, 1, key.text, warm, files)

    def _at_once(self, spec: TrainSpec) -> int:
        return self._size if spec.program and spec.num_nodes == 1 else spec.num_nodes

    def _warm_attempt(
        self, spec: TrainSpec, key: Key, job: str, files: Sequence[LogFile], places: Sequence[int]
    ) -> Attempt:
        (file,) = files
        # A single process meets nobody: no port is held for it.
        environ = node_env(spec, job, file.process, 0, file.attempt)
        return WarmAttempt(self._worker(places[0], key), environ, file.path)

    def _worker(self, place: int, key: Key) -> Worker:
        """Returns the worker of a place, a new one where it serves another key or has ended."""
        present = self._workers.get(place)
        if present and present.serves(key):
            return present
        if present:
            present.close()
        cores = cores_of(place, self._size)
        self._workers[place] = Worker(key, cores, Path(self._folder.name, f"worker-{place}.log"))
        self._turns.note(place, key.text)
        return self._workers[place]

    def _key(self, spec: TrainSpec) -> Key:
        base = {name: value for name, value in self._environ.items() if name not in RESERVED_ENV}
        return Key.of(spec.program, {**base, **defaults(base, self._size), **spec.env})

    def _check_program(self, spec: TrainSpec, cancelled: Callable[[], bool]) -> None:
        """Lets a free worker look, which will need the program anyway; without one, a new process.

        Raises:
            SpecError: Program or parameters are wrong.
            JobCancelled: `cancelled` said so.
        """
        refused = self._check_by_worker(spec, cancelled)
        if refused is None:
            super()._check_program(spec, cancelled)
        elif refused:
            raise refusal(refused)

    def _check_by_worker(self, spec: TrainSpec, cancelled: Callable[[], bool]) -> str | None:
        """Returns what is wrong, or ""; None where no worker is free, or it has died of it."""
        key = self._key(spec)
        place = self._turns.take_free(key.text)
        if place is None:
            return None
        try:
            worker = self._worker(place, key)
            try:
                worker.begin_check(parameters_json(spec.parameters))
                self._await(worker.done, spec, cancelled)
            except BaseException:
                worker.close()
                raise
            return worker.refused
        finally:
            self._turns.give_back([place])
