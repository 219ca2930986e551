"""KFP's API as schedules need it, through `kfp.Client`: the only code here that calls it.

`kfp.Client` finds the server and the credentials. The calls are the generated ones that it carries:
its own have no time limit, and some print. What comes back becomes a value at once, and what goes
wrong one of our errors.
"""

import io
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kfp_jax.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    SpecError,
    Throttled,
    Unavailable,
)
from kfp_jax.schedules.records import Mark, Record, read_mark
from kfp_jax.schedules.spec import Schedule

TOKEN_VARIABLE = "KFP_EXISTING_TOKEN"  # the name that KFP's own command line reads
_SECONDS = 30.0
_PAGE = 100
_MAX_PAGES = 50
_EQUALS = "EQUALS"
_ENDED = {"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"}


@dataclass(frozen=True)
class Connection:
    """Where KFP's API is, and as whom; what is empty `kfp.Client` finds itself.

    Attributes:
        host: Its URL; else KF_PIPELINES_ENDPOINT, else the service in the cluster of this pod or of
            the kubeconfig.
        namespace: Of the user, where KFP has several.
        token: A bearer token; else KFP_EXISTING_TOKEN, else the pod's own.
        ca_file: Of who signed the server's certificate.
    """

    host: str = ""
    namespace: str = ""
    token: str = ""
    ca_file: str = ""

    def __repr__(self) -> str:
        return f"Connection(host={self.host!r}, namespace={self.namespace!r})"  # no token in logs


@dataclass(frozen=True)
class LastRun:
    """The latest run of a schedule."""

    id: str
    name: str
    state: str
    created: datetime

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state in _ENDED


class Server:
    """Recurring runs on a server."""

    def __init__(self, connection: Connection) -> None:
        """Finds the server.

        Raises:
            SpecError: kfp is not installed.
            ClusterError: No server is known, or it does not answer.
        """
        try:
            from kfp.client import Client
        except ImportError as error:
            raise SpecError(
                "Schedules need kfp; install it with: pip install 'kfp-jax[kfp]'."
            ) from error

        class QuickClient(Client):
            def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:
                # kfp's own asks five times, without a time limit, with a traceback each.
                api: Any = self._healthz_api
                return api.healthz_service_get_healthz(_request_timeout=_SECONDS)

        self._host = connection.host or os.environ.get("KF_PIPELINES_ENDPOINT", "")
        self._namespace = connection.namespace
        token = (connection.token or os.environ.get(TOKEN_VARIABLE, "")).strip()
        if not token.isprintable():  # it would be in the traceback of who sends it
            raise SpecError(
                f"The token holds line breaks or control characters; give one line in"
                f" {TOKEN_VARIABLE} or with --token-file."
            )
        if urlsplit(self._host).password:
            raise SpecError(
                f"The address of KFP's API holds a password, which messages would show; give a"
                f" token in {TOKEN_VARIABLE} or with --token-file."
            )
        with self._errors("find the server"):
            if connection.ca_file and not Path(connection.ca_file).is_file():
                raise SpecError(f"CA file {connection.ca_file} is not there; give one that is.")
            self._client: Any
            self._client = QuickClient(
                host=connection.host or None,
                # Not the namespace: kfp would look for the server there.
                existing_token=token or None,
                ssl_ca_cert=connection.ca_file or None,
            )
            self._namespace = self._namespace or self._client.get_user_namespace() or ""
        calls: Any = self._client.recurring_runs
        self._api = calls.recurring_run_service_list_recurring_runs.__self__.api_client
        self._host = self._api.configuration.host

    def recurring_runs(self, name: str = "") -> list[Record]:
        """Returns all recurring runs, or those of a name.

        Raises:
            ClusterError: The server refused or did not answer.
        """
        options = {"filter": _only("display_name", name)} if name else {}
        call = self._client.recurring_runs.recurring_run_service_list_recurring_runs
        found = self._pages("list recurring runs", call, "recurring_runs", **options)
        # A server that does not know the filter sends all.
        return [_record(item) for item in found if name in ("", item.display_name)]

    def create(self, schedule: Schedule, mark: Mark, *, enabled: bool) -> Record:
        """Makes a recurring run that never catches up, one run at a time.

        Raises:
            ClusterError: The server refused or did not answer.
        """
        trigger = (
            {"cron_schedule": {"cron": schedule.cron}}
            if schedule.cron
            else {"periodic_schedule": {"interval_second": str(schedule.every)}}
        )
        runtime: dict[str, Any] = {"parameters": dict(schedule.arguments)}
        if schedule.pipeline_root:
            runtime["pipeline_root"] = schedule.pipeline_root
        body: dict[str, Any] = {
            "display_name": schedule.name,
            # In itself: nothing but the recurring run has to be there, and nothing is left of it.
            "pipeline_spec": schedule.pipeline.for_kfp(),
            "runtime_config": runtime,
            "trigger": trigger,
            "max_concurrency": "1",
            "no_catchup": True,
            "experiment_id": self._experiment(schedule.experiment),
        }
        if schedule.service_account:
            body["service_account"] = schedule.service_account
        return self.copy(body, mark, enabled=enabled)

    def copy(self, body: Mapping[str, Any], mark: Mark, *, enabled: bool) -> Record:
        """Makes a recurring run from what another one was made of.

        Raises:
            ClusterError: The server refused or did not answer.
        """
        marked = {
            **body,
            "description": mark.description(),
            "mode": "ENABLE" if enabled else "DISABLE",
        }
        what = f"create recurring run {body['display_name']}"
        call = self._client.recurring_runs.recurring_run_service_create_recurring_run
        return _record(self._call(what, call, recurring_run=marked))

    def change(self, verb: str, record: Record) -> None:
        """Enables, disables or deletes a recurring run; one that is gone is deleted.

        Raises:
            ClusterError: The server refused or did not answer.
        """
        call = getattr(self._client.recurring_runs, f"recurring_run_service_{verb}_recurring_run")
        try:
            self._call(f"{verb} recurring run {record.name}", call, recurring_run_id=record.id)
        except NotFound:
            if verb != "delete":
                raise

    def last_runs(self, records: Iterable[Record]) -> dict[str, LastRun]:
        """Returns the latest run of each recurring run that has one, by the latter's id.

        Raises:
            ClusterError: The server refused or did not answer.
        """
        wanted = {record.id: record for record in records}
        found: dict[str, LastRun] = {}
        oldest = min((record.created for record in wanted.values()), default=None)
        for experiment in {record.experiment for record in wanted.values()}:
            call = self._client.runs.run_service_list_runs
            options = {"experiment_id": experiment} if experiment else {}
            for run in self._pages("list runs", call, "runs", sort_by="created_at desc", **options):
                if oldest and run.created_at and run.created_at < oldest:
                    break
                owner = run.recurring_run_id
                if owner in wanted and owner not in found:
                    found[owner] = LastRun(
                        run.run_id, run.display_name, run.state or "PENDING", run.created_at
                    )
                if len(found) == len(wanted):
                    break
        return found

    def _experiment(self, name: str) -> str:
        call = self._client.experiments.experiment_service_list_experiments
        options = {"filter": _only("display_name", name)}
        for item in self._pages("list experiments", call, "experiments", **options):
            if item.display_name == name:
                return str(item.experiment_id)
        made = self._call(
            f"create experiment {name}",
            self._client.experiments.experiment_service_create_experiment,
            experiment={"display_name": name, "namespace": self._namespace},
        )
        return str(made.experiment_id)

    def _pages(self, what: str, call: Callable[..., Any], items: str, **options: Any) -> Any:
        if self._namespace and "experiment_id" not in options:
            options["namespace"] = self._namespace
        token = ""
        for _ in range(_MAX_PAGES):
            answer = self._call(what, call, page_size=_PAGE, page_token=token, **options)
            yield from getattr(answer, items) or ()
            token = answer.next_page_token or ""
            if not token:
                return

    def _call(self, what: str, call: Callable[..., Any], **options: Any) -> Any:
        with self._errors(what):
            answer = call(**options, _request_timeout=_SECONDS)
            kind = self._api.last_response.getheader("Content-Type") or ""
            if "json" not in kind:
                # kfp reads a page for logging in as an empty answer.
                raise Unavailable(
                    f"{self._host} answered with {kind or 'no content type'} and not as KFP's API"
                    " does, perhaps with a page for logging in; give the API's address with --host"
                    f" and a token in {TOKEN_VARIABLE}."
                )
            return answer

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Makes errors of the client ours, and keeps what it prints and warns to itself."""
        import urllib3
        from kfp_server_api.exceptions import ApiException

        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                yield
            except ApiException as error:
                raise _refusal(error, what, self._host, self._namespace) from error
            except (urllib3.exceptions.HTTPError, OSError) as error:
                raise Unavailable(
                    f"KFP's API at {self._host or 'its default address'} does not answer"
                    f" ({_cause(error)}); see that it runs, or give another address with --host."
                ) from error


def _refusal(error: Any, what: str, host: str, namespace: str) -> ClusterError:
    said = _said(error)
    where = f" in namespace {namespace}" if namespace else ""
    status = int(error.status or 0)
    if status == 401:
        return Forbidden(
            f"KFP's API at {host} does not know who asks (401: {said}); give a token that is valid"
            f" in {TOKEN_VARIABLE} or with --token-file."
        )
    if status == 403:
        return Forbidden(
            f"KFP's API refused to {what}{where} (403: {said}); ask its administrator for the"
            " right, or give another namespace."
        )
    if status == 404:
        return NotFound(
            f"KFP's API at {host} found nothing when asked to {what}{where} (404: {said}); it may"
            " be gone, or the address is not that of KFP's API."
        )
    if status == 409:
        return Conflict(f"KFP's API could not {what}{where} (409: {said}); try again.")
    if status == 429:
        return Throttled(f"KFP's API is asked too often to {what} (429: {said}); try again later.")
    if 400 <= status < 500:
        return Rejected(f"KFP's API refused to {what}{where} ({status}: {said}); mend that.")
    return Unavailable(
        f"KFP's API at {host} could not {what}{where} ({status or 'TLS'}: {said}); try again, or"
        " ask its administrator."
    )


def _said(error: Any) -> str:
    """Returns the server's own sentence, short."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    try:
        answer = json.loads(body or "")
        text = str(answer.get("message") or answer.get("error") or "")
    except (ValueError, AttributeError):
        text = ""
    lines = (text or str(error.reason or "no reason given")).split("\n")
    return " ".join(lines[-1].split())[:200].rstrip(".")


def _cause(error: BaseException) -> str:
    """Returns why there is no answer, without the layers that pass it on."""
    text = " ".join(str(getattr(error, "reason", None) or error).split())
    return text.rpartition(": ")[2].rpartition("] ")[2][-120:].rstrip(")") or "no reason given"


def _only(key: str, value: str) -> str:
    predicate = {"operation": _EQUALS, "key": key, "stringValue": value}
    return json.dumps({"predicates": [predicate]})


def _record(item: Any) -> Record:
    trigger = item.trigger
    cron = trigger.cron_schedule.cron if trigger and trigger.cron_schedule else ""
    periodic = trigger.periodic_schedule if trigger else None
    body = {
        "display_name": item.display_name,
        "pipeline_spec": item.pipeline_spec,
        "runtime_config": item.runtime_config,
        "trigger": trigger,
        "max_concurrency": item.max_concurrency,
        "no_catchup": item.no_catchup,
        "experiment_id": item.experiment_id,
        "service_account": item.service_account,
        "pipeline_version_reference": item.pipeline_version_reference,
    }
    return Record(
        id=item.recurring_run_id,
        name=item.display_name or "",
        enabled=item.status == "ENABLED" or (item.status is None and item.mode == "ENABLE"),
        created=item.created_at or datetime.fromtimestamp(0, UTC),
        cron=cron or "",
        every=int(periodic.interval_second) if periodic and periodic.interval_second else 0,
        experiment=item.experiment_id or "",
        error=item.error.message or "" if item.error else "",
        mark=read_mark(item.description or ""),
        body={key: value for key, value in body.items() if value is not None},
    )
