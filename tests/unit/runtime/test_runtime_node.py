"""The environment of a node."""

from pathlib import Path

import pytest
from kfp_jax_runtime import compile_cache
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.node import from_environment, parameters

ALONE = {"KFP_JAX_OUTPUT_URI": "/out"}
SECOND_OF_TWO = ALONE | {
    "JAX_COORDINATOR_ADDRESS": "host-0.job:1234",
    "JAX_NUM_PROCESSES": "2",
    "JAX_PROCESS_ID": "1",
}


def test_a_whole_environment_is_read() -> None:
    node = from_environment(
        SECOND_OF_TWO
        | {
            "JAX_COORDINATOR_BIND_ADDRESS": "127.0.0.1:1234",
            "KFP_JAX_PARAMETERS": '{"epochs": 3}',
            "KFP_JAX_CHECKPOINT_URI": "gs://bucket/job",
            "KFP_JAX_DATASET_URI": "file:///data/mnist%20x",
            "KFP_JAX_JOB": "mnist-1",
            "KFP_JAX_ATTEMPT": "2",
        }
    )
    assert (node.process_index, node.process_count, node.distributed) == (1, 2, True)
    assert node.coordinator == "host-0.job:1234"
    assert node.bind_address == "127.0.0.1:1234"
    assert node.parameters == {"epochs": 3}
    assert node.output_dir == Path("/out")
    assert node.checkpoint_uri == "gs://bucket/job"
    assert node.dataset_dir == Path("/data/mnist x")
    assert (node.job, node.attempt) == ("mnist-1", 2)


@pytest.mark.parametrize(
    ("counted", "attempt"),
    [({}, 2), ({"KFP_JAX_RESTARTS": "0"}, 2), ({"KFP_JAX_RESTARTS": "3"}, 5)],
)
def test_a_restart_by_the_cluster_is_an_attempt(counted: dict[str, str], attempt: int) -> None:
    assert from_environment(ALONE | {"KFP_JAX_ATTEMPT": "2"} | counted).attempt == attempt


SLICE = {"JAX_PLATFORMS": "tpu,cpu", "TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}
SECOND_OF_FOUR = SECOND_OF_TWO | {"JAX_NUM_PROCESSES": "4"}


@pytest.mark.parametrize(
    ("environ", "index"),
    [
        (SECOND_OF_TWO | SLICE, 1),
        (SECOND_OF_TWO | SLICE | {"TPU_WORKER_ID": "7", "JAX_PLATFORMS": "cpu"}, 1),
        (SECOND_OF_TWO | SLICE | {"TPU_WORKER_ID": "7", "TPU_WORKER_HOSTNAMES": ""}, 1),
        (ALONE | SLICE, 0),
        (
            SECOND_OF_FOUR
            | {"JAX_PROCESS_ID": "3"}
            | SLICE
            | {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"},
            3,
        ),
    ],
)
def test_a_host_of_a_slice_of_tpus_is_numbered_as_gke_does(
    environ: dict[str, str], index: int
) -> None:
    assert from_environment(environ).process_index == index


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        (SECOND_OF_FOUR | SLICE, "host 1 of 2 of its slice of TPUs but process 1 of 4 of the job"),
        (SECOND_OF_TWO | SLICE | {"TPU_WORKER_ID": "0"}, "host 0 of 2 .* but process 1 of 2"),
        (SECOND_OF_TWO | SLICE | {"TPU_WORKER_ID": ""}, "TPU_WORKER_ID must be a whole number"),
    ],
)
def test_a_slice_that_is_not_the_job_is_refused(environ: dict[str, str], seen: str) -> None:
    with pytest.raises(BadInput, match=seen):
        from_environment(environ)


@pytest.mark.parametrize("count", [None, "", "1"])
def test_a_lone_process_joins_nobody(count: str | None) -> None:
    environ = ALONE if count is None else ALONE | {"JAX_NUM_PROCESSES": count}
    node = from_environment(environ | {"KFP_JAX_DATASET_URI": "", "JAX_PROCESS_ID": ""})
    assert not node.distributed
    assert (node.process_index, node.process_count) == (0, 1)
    assert node.checkpoint_uri == "/out/checkpoints"
    assert node.dataset_dir is None
    assert (node.job, node.attempt, node.parameters) == ("", 1, {})


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("ckpt", "{cwd}/ckpt"),
        ("~/ckpt", "{home}/ckpt"),
        ("gs://b/ckpt", "gs://b/ckpt"),
        ("file:///x", "/x"),
    ],
)
def test_a_checkpoint_folder_is_made_absolute_and_a_bucket_is_left_alone(
    uri: str, expected: str
) -> None:
    node = from_environment(ALONE | {"KFP_JAX_CHECKPOINT_URI": uri})
    assert node.checkpoint_uri == expected.format(cwd=Path.cwd(), home=Path.home())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES must be a whole number of at least 1"),
        ({"JAX_NUM_PROCESSES": "0"}, "at least 1, not '0'"),
        ({"JAX_PROCESS_ID": ""}, "JAX_PROCESS_ID must be a whole number of at least 0, not ''"),
        ({"JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID is 2 but JAX_NUM_PROCESSES is 2"),
        ({"JAX_COORDINATOR_ADDRESS": ""}, "JAX_COORDINATOR_ADDRESS must be host:port"),
        ({"JAX_COORDINATOR_ADDRESS": "host"}, "must be host:port of process 0"),
        ({"KFP_JAX_OUTPUT_URI": ""}, "KFP_JAX_OUTPUT_URI is not set"),
        ({"KFP_JAX_OUTPUT_URI": "ftp://b/x"}, "a folder that this node can open, not 'ftp://b/x'"),
        ({"KFP_JAX_ATTEMPT": "-1"}, "KFP_JAX_ATTEMPT must be"),
        ({"KFP_JAX_RESTARTS": "one"}, "KFP_JAX_RESTARTS must be"),
        ({"KFP_JAX_PARAMETERS": "{"}, "KFP_JAX_PARAMETERS is not JSON"),
        ({"KFP_JAX_PARAMETERS": "[1]"}, "must be a JSON object"),
    ],
)
def test_a_malformed_variable_is_named(changed: dict[str, str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        from_environment(SECOND_OF_TWO | changed)


def test_no_parameters_are_an_empty_object() -> None:
    assert parameters({"KFP_JAX_PARAMETERS": ""}) == {}


def test_the_compilation_cache_is_the_users_own_and_takes_small_programs(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert compile_cache.set_up(environ) == ""
    assert environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "kfp-jax" / "xla")
    assert (tmp_path / "kfp-jax" / "xla").is_dir()
    assert environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"
    assert environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] == "-1"


def test_a_cache_folder_that_was_chosen_is_used(tmp_path: Path) -> None:
    environ = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "mine"), "HOME": "/nonexistent"}
    assert compile_cache.set_up(environ) == ""
    assert environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "mine")


def test_without_a_folder_to_write_to_there_is_no_cache_and_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environ = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "file" / "below")}
    assert "no compilation cache: cannot create" in compile_cache.set_up(environ)
    assert "JAX_COMPILATION_CACHE_DIR" not in environ
