"""The images run as any user, without one writable folder but /tmp, and hold what they say."""

import json
from dataclasses import replace
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from e2e.mnist import PODS as SMALL_PODS
from e2e.mnist import mnist, preparation
from e2e.places import Place, until
from kfp_jax.backends.jobset import JobSetBackend
from kfp_jax.components.launching import IMAGE
from kfp_jax.kube.resources import PODS
from kfp_jax.launch import launch
from kfp_jax.manifests.pod import CONTAINER_SECURITY, CPU, POD_SECURITY

SUGGEST = """python -c '
from kfp_jax.sweep import *
space = Space.from_json({"x": uniform(0, 1)})
done = [Trial(n, {"x": n / 20}, TrialState.COMPLETE, n / 20) for n in range(20)]
for sampler in ("tpe", "cmaes", "quasirandom", "random"):
    print(suggest(Study(space=space, sampler=sampler, max_trials=30), done, 20))
'"""
PLOT = """python -c '
import io
from matplotlib.figure import Figure
figure = Figure()
figure.subplots().set_title("loss", fontweight="bold")
for kind in ("svg", "png"):
    figure.savefig(io.BytesIO(), format=kind)
'"""
USES = {
    "launcher": (IMAGE, "kfp-jax --help && python3 -c 'import kfp.dsl, kfp_jax.components, pylab'"),
    "launcher-compiles": (IMAGE, "kfp-jax compile --output /tmp/compiled"),
    "launcher-suggests": (IMAGE, SUGGEST),
    "launcher-plots": (IMAGE, PLOT),
    "launcher-holds-no-jax": (IMAGE, "! python -c 'import jax'"),
    "trainer-cpu": (
        CPU.image,
        "python -c 'import jax, kfp_jax_runtime; print(jax.numpy.ones(3).sum())'",
    ),
    "trainer-cpu-has-pip": (CPU.image, "pip --version"),
}
# What is there, said by what is there.
CONTENTS = """python -c '
import json, pathlib, platform, re
from importlib.metadata import distributions
status = pathlib.Path("/var/lib/dpkg/status").read_text()
print(json.dumps({
    "bill": json.loads(pathlib.Path("/opt/kfp-jax/sbom.cdx.json").read_text()),
    "python": platform.python_version(),
    "distributions": [[d.metadata["Name"], d.version] for d in distributions()
                      if "/opt/kfp-jax/" in str(d.locate_file(""))],
    "debian": re.findall("^Package: (.*)$", status, re.MULTILINE),
}))
'"""
# Files of a package that are not as its wheel had them, and programs that change the user.
INTEGRITY = """python -c '
import base64, hashlib, pathlib
from importlib.metadata import distributions
kept = changed = 0
for found in distributions(path=["/opt/kfp-jax/lib/python3.11/site-packages"]):
    for file in found.files or ():
        path = pathlib.Path(file.locate())
        if file.hash is None or not path.exists():
            continue
        digest = hashlib.sha256(path.read_bytes()).digest()
        said = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        kept, changed = kept + 1, changed + (said != file.hash.value)
print(kept, "files")
assert kept > 5000 and not changed, (kept, changed)
' && test -z "$(find / -xdev -perm /6000 -type f)" && ! command -v apt-get dpkg perl"""


def pod(image: str, script: str, uid: int | None) -> dict[str, Any]:
    user = {} if uid is None else {"runAsUser": uid}
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-ec", f"id -u; {script}"],
        "securityContext": {**CONTAINER_SECURITY, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "uses-image"},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "pipeline-runner",
            "securityContext": {**POD_SECURITY, **user},
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def said(place: Place, image: str, script: str, uid: int | None = None) -> list[str]:
    """Returns what a pod with the image printed; it must end well."""
    place.create(PODS, pod(image, script, uid))

    def ended() -> str:
        phase = place.get(PODS, "uses-image")["status"]["phase"]
        return phase if phase in ("Succeeded", "Failed") else ""

    phase = until("the pod ends", ended)
    log = place.log("uses-image", "main")
    assert phase == "Succeeded", log
    return log.splitlines()


@pytest.mark.parametrize(
    ("use", "uid"),
    [*((use, 1_000_650_000) for use in USES), ("launcher", None), ("trainer-cpu", None)],
)
def test_an_image_needs_no_user_of_its_own(place: Place, use: str, uid: int | None) -> None:
    assert said(place, *USES[use], uid)[0] == str(uid or 65532)


@pytest.mark.parametrize("image", [IMAGE, CPU.image])
def test_an_image_has_no_more_and_no_less_than_its_bill_says(place: Place, image: str) -> None:
    found = json.loads(said(place, image, CONTENTS)[1])
    bill = found["bill"]
    assert not JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill))
    listed = {
        kind: sorted(
            [item["name"], item["version"]]
            for item in bill["components"]
            if item["purl"].startswith(f"pkg:{kind}/")
        )
        for kind in ("pypi", "deb", "generic")
    }
    assert listed["pypi"] == sorted(found["distributions"])
    assert listed["generic"] == [["python", found["python"]]]
    assert [name for name, _ in listed["deb"]] == sorted(found["debian"])
    unhashed = [
        item["name"]
        for item in bill["components"]
        if item["purl"].startswith("pkg:pypi/") and "hashes" not in item
    ]
    assert unhashed == ["kfp-jax"]


@pytest.mark.parametrize("image", [IMAGE, CPU.image])
def test_what_an_image_has_of_a_package_is_as_in_its_wheel(place: Place, image: str) -> None:
    said(place, image, INTEGRITY)


def test_the_training_image_prepares_data_and_trains_on_them(place: Place) -> None:
    """Without pyarrow, which tensorflow-datasets declares. A JobSet names the image itself."""
    backend = JobSetBackend(place.client, namespace=place.namespace)
    prepared = launch(replace(preparation(place.folder / "data"), pods=SMALL_PODS), backend)
    assert prepared.error() is None, f"{prepared.message}\n{place.story()}"
    dataset = place.folder / "data" / "dataset"
    trained = launch(mnist(place.folder, dataset, num_nodes=1), backend)
    assert trained.error() is None, f"{trained.message}\n{place.story()}"
    assert trained.metrics["accuracy"] > 0.5
