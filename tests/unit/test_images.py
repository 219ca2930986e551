import pytest
from kfp_jax import __version__
from kfp_jax.cli import main
from kfp_jax.errors import SpecError
from kfp_jax.images import PREFIX_VARIABLE, image
from kfp_jax.manifests.pod import FLAVORS, Flavor
from kfp_jax.manifests.runtime import shipped_runtime
from kfp_jax.manifests.template import node_container

REGISTRY = "registry.example.com:5000/team/kfp-jax"


@pytest.mark.parametrize("given", [None, ""])
def test_images_are_ours_unless_told_otherwise(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PREFIX_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(PREFIX_VARIABLE, given)
    assert image("trainer-cpu") == f"kfp-jax/trainer-cpu:{__version__}"


@pytest.mark.parametrize("kind", FLAVORS, ids=lambda kind: kind.name)
def test_training_images_move_to_another_registry(
    kind: Flavor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX_VARIABLE, REGISTRY)
    pod = shipped_runtime(kind)["spec"]["template"]["spec"]["replicatedJobs"][0]
    container = node_container(pod["template"]["spec"]["template"]["spec"])
    assert container["image"] == f"{REGISTRY}/trainer-{kind.name}:{__version__}"


@pytest.mark.parametrize("given", ["kfp-jax/", "https://r.example/x", "a b", "Team/x:1", "r/Upper"])
def test_what_is_no_prefix_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX_VARIABLE, given)
    with pytest.raises(SpecError, match=r"KFP_JAX_IMAGE_PREFIX is .*registry\.example\.com/team"):
        image("trainer-cpu")


@pytest.mark.parametrize(
    ("prefix", "output", "said"),
    [
        ("registry:5000/x/", "build/x", "KFP_JAX_IMAGE_PREFIX is 'registry:5000/x/'"),
        ("registry:5000/x", "s3://b/x", "--output s3://b/x is not a folder of this machine"),
    ],
)
def test_compile_refuses_in_a_sentence(
    prefix: str,
    output: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(PREFIX_VARIABLE, prefix)
    monkeypatch.setattr("sys.argv", ["kfp-jax", "compile", "--output", output])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert said in capsys.readouterr().err
