"""Folders on claims are mounted in the pods that are to write to them."""

import pytest
from fakes.jobs import RESULTS, identity, job
from kfp_jax import storage
from kfp_jax.backends.local import LocalBackend
from kfp_jax.errors import SpecError
from kfp_jax.manifests.claims import on_claims
from kfp_jax.manifests.jobset import jobset
from kfp_jax.pods import Volume


def test_a_claim_is_mounted_once_and_the_folder_is_on_it() -> None:
    spec = on_claims(job(output_uri="pvc://work/mnist/1/", dataset_uri="pvc://work"))
    assert spec.output_uri == "/mnt/kfp-jax/work/mnist/1"
    assert spec.dataset_uri == "/mnt/kfp-jax/work"
    (added,) = [volume for volume in spec.pods.volumes if volume != RESULTS]
    assert added.mount_path == "/mnt/kfp-jax/work"
    assert added.source == {"persistentVolumeClaim": {"claimName": "work"}}
    assert spec.checkpoints == "/mnt/kfp-jax/work/mnist/1/checkpoints"
    jobset(spec, identity())  # which refuses an output on no volume


def test_a_claim_that_is_mounted_anyway_is_used_there() -> None:
    spec = on_claims(job(output_uri="pvc://results/mnist"))
    assert spec.output_uri == "/results/mnist"
    assert spec.pods.volumes == (RESULTS,)


@pytest.mark.parametrize("part", [{"sub_path": "x"}, {"read_only": True}])
def test_a_part_of_a_claim_is_not_the_claim(part: dict[str, object]) -> None:
    volume = Volume(name="v", mount_path="/v", source=RESULTS.source, **part)  # type: ignore[arg-type]
    spec = on_claims(job(output_uri="pvc://results/mnist", pods={"volumes": (volume,)}))
    assert spec.output_uri == "/mnt/kfp-jax/results/mnist"


def test_two_claims_have_names_of_their_own() -> None:
    spec = on_claims(job(output_uri="pvc://a/x", checkpoint_uri="pvc://b/x"))
    names = [volume.name for volume in spec.pods.volumes]
    assert len({*names}) == 3
    assert spec.checkpoints == "/mnt/kfp-jax/b/x"


@pytest.mark.parametrize("uri", ["pvc://", "pvc:///x", "pvc://a/../b", "pvc://A/x", "pvc://a/b//c"])
def test_what_is_no_folder_on_a_claim_is_refused(uri: str) -> None:
    with pytest.raises(SpecError, match="is not a folder on a claim; write pvc://claim/folder"):
        on_claims(job(output_uri=uri))


@pytest.mark.parametrize("name", ["output_uri", "checkpoint_uri", "dataset_uri"])
def test_one_machine_sees_no_claim(name: str, tmp_path: object) -> None:
    spec = job(**{"output_uri": str(tmp_path), name: "pvc://work/x"})
    with pytest.raises(SpecError, match=f"^{name} pvc://work/x is on a claim of a cluster") as e:
        LocalBackend().validate(spec)
    assert str(e.value).count(". ") == 0


def test_what_the_launcher_writes_stays_with_it() -> None:
    with storage.results("pvc://work/x") as folder:
        assert folder == storage.here("pvc://work/x", "output_uri")
    assert storage.shown_at("pvc://work/x") == str(folder)
    assert storage.shown_at("s3://b/x") == "s3://b/x"
