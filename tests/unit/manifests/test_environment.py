from typing import Any

import pytest
from fakes.jobs import identity, job
from hypothesis import given
from hypothesis import strategies as st
from kfp_jax.errors import SpecError
from kfp_jax.manifests.environment import command, literal, process_env, shared_env
from kfp_jax.manifests.jobset import jobset
from kfp_jax.spec import RESERVED_ENV, TrainSpec


def variables(spec: TrainSpec) -> dict[str, Any]:
    return {item["name"]: item for item in shared_env(spec, identity())}


def kubelet(text: str) -> str:
    """Returns what the kubelet makes of a text, by its documented rules."""
    done, rest = "", text
    while rest:
        if rest.startswith("$$"):
            done, rest = done + "$", rest[2:]
        elif rest.startswith("$("):
            done, _, rest = done + "EXPANDED", *rest.partition(")")[1:]
        else:
            done, rest = done + rest[0], rest[1:]
    return done


@given(st.text("$()aé", max_size=12))
def test_text_arrives_as_it_was(text: str) -> None:
    assert kubelet(literal(text)) == text


def test_arguments_arrive_as_they_were() -> None:
    argv = ('{"a":"b"}', "it's", "a\nb", "日本 €", "", "--", "$(HOME)", "$HOME")
    assert tuple(map(kubelet, command(job(program="", command=argv)))) == argv


def test_parameters_arrive_as_they_were() -> None:
    spec = job(parameters={"cost": "$(X) $$"})
    assert kubelet(variables(spec)["KFP_JAX_PARAMETERS"]["value"]) == '{"cost": "$(X) $$"}'


def test_no_variable_of_ours_or_the_user_begins_with_jax() -> None:
    found = variables(job(env={"JAX_DEBUG_NANS": "1", "XLA_FLAGS": "--x"}))
    assert not [name for name in found if name.startswith("JAX_")]
    assert found["XLA_FLAGS"]["value"] == "--x"


def test_all_reserved_variables_but_the_bind_address_are_set() -> None:
    found = variables(job()) | {item["name"]: item for item in process_env(job(), identity())}
    # A node has one address that the others know, and JAX binds all of them.
    assert RESERVED_ENV - found.keys() == {"JAX_COORDINATOR_BIND_ADDRESS"}


def test_the_names_of_jaxjob_v1_say_the_same() -> None:
    found = variables(job(num_nodes=3))
    assert found["COORDINATOR_ADDRESS"]["value"] == "mnist-0a1b2c3d-1-node-0-0.mnist-0a1b2c3d-1"
    assert found["COORDINATOR_PORT"]["value"] == "29500"
    assert found["NUM_PROCESSES"]["value"] == "3"
    (jax_id,) = [i for i in process_env(job(), identity()) if i["name"] == "JAX_PROCESS_ID"]
    assert found["PROCESS_ID"]["valueFrom"] == jax_id["valueFrom"]


def test_output_is_unbuffered_unless_the_user_says_otherwise() -> None:
    assert variables(job())["PYTHONUNBUFFERED"]["value"] == "1"
    assert variables(job(env={"PYTHONUNBUFFERED": "2"}))["PYTHONUNBUFFERED"]["value"] == "2"


def test_an_empty_variable_is_set() -> None:
    assert variables(job(env={"NO_PROXY": ""}))["NO_PROXY"] == {"name": "NO_PROXY"}


def test_a_secret_is_a_reference() -> None:
    found = variables(job(pods={"secret_env": {"HF_TOKEN": "hub/token"}}))["HF_TOKEN"]
    assert found == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}},
    }


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param({"program": "", "command": ("x",) * 129}, "129 arguments", id="arguments"),
        pytest.param({"program": "", "command": ("x" * 131_072,)}, "131,072 bytes", id="argument"),
        pytest.param({"program": "", "command": ("é" * 65_536,)}, "131,072 bytes", id="bytes"),
        pytest.param({"env": {"A": "x" * 131_072}}, "Variable A", id="variable"),
        pytest.param({"env": {f"A{n}": "x" for n in range(129)}}, "141 variables", id="variables"),
    ],
)
def test_what_linux_or_a_trainjob_cannot_take_is_refused(
    change: dict[str, Any], named: str
) -> None:
    spec = job(**change)
    with pytest.raises(SpecError, match=named):
        jobset(spec, identity())
