"""Folders and checkpoints in a real S3 server: whole, or known not to be, whatever dies."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fakes.s3_server import S3Server
from kfp_jax_store import (
    MARKER,
    Store,
    StoreError,
    complete,
    download,
    is_complete,
    open_store,
    remove,
    upload,
)

pytestmark = pytest.mark.integration

PROGRAM = """
import os, signal, sys, time
import jax, jax.numpy as jnp, numpy as np
from kfp_jax_runtime import mesh

def state_at(step):
    values = {
        "f32": jnp.arange(12.0).reshape(3, 4) + step,
        "bf16": jnp.full((5,), step, jnp.bfloat16),
        "i32": jnp.arange(7) * step,
        "flag": jnp.array([True, False]),
        "scalar": jnp.float32(step / 3),
        "nested": {"list": [jnp.ones((2, 1)), jnp.ones(1) * step]},
    }
    where = jax.sharding.NamedSharding(mesh.data_mesh(), jax.sharding.PartitionSpec())
    replicated = jax.tree.map(
        lambda leaf: jax.make_array_from_callback(
            leaf.shape, where, lambda index, whole=np.asarray(leaf): whole[index]),
        values)
    return {**replicated, "position": step, "host": np.arange(3) + step}

def same(found, wanted):
    pairs = zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(wanted), strict=True)
    for (path, a), b in pairs:
        a, b = (x.addressable_data(0) if isinstance(x, jax.Array) else x for x in (a, b))
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape and (a == b).all(), path

def main(run):
    restored = run.checkpoints.restore(state_at(0))
    first = 0
    if restored:
        first = restored[0]
        same(restored[1], state_at(first))
    for step in range(first + 1, first + run.parameters["steps"] + 1):
        assert run.checkpoints.save(step, state_at(step))
        assert not run.checkpoints.save(step, state_at(step))
        run.report(step, loss=1.0)
        if step == run.parameters.get("die_at"):
            run.wait()
            os.kill(os.getpid(), signal.SIGKILL)
    same(run.checkpoints.restore(state_at(1))[1], state_at(step))
    return {"first": first, "last": step}

def split(run):
    where = jax.sharding.NamedSharding(mesh.data_mesh(), jax.sharding.PartitionSpec("data"))
    whole = np.arange(4.0)
    part = jax.make_array_from_callback((4,), where, lambda index: whole[index])
    run.checkpoints.save(1, {"x": part})
"""


def train(
    tmp_path: Path, output: str, processes: int, parameters: dict[str, int], program: str = "main"
) -> tuple[list[int], str]:
    """Runs the program as nodes on machines of their own would; returns exit codes and output."""
    (tmp_path / "stored_program.py").write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    running: list[subprocess.Popen[str]] = []
    log = tmp_path / "said"
    try:
        for process in range(processes):
            scratch = tmp_path / f"machine-{time.monotonic_ns()}"
            scratch.mkdir()
            environ = {
                **os.environ,
                "TMPDIR": str(scratch),
                "JAX_PLATFORMS": "cpu",
                "JAX_NUM_PROCESSES": str(processes),
                "JAX_PROCESS_ID": str(process),
                "JAX_COORDINATOR_ADDRESS": address,
                "JAX_COORDINATOR_BIND_ADDRESS": address,
                "KFP_JAX_OUTPUT_URI": output,
                "KFP_JAX_PARAMETERS": json.dumps(parameters),
                "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
            }
            node = [sys.executable, "-m", "kfp_jax_runtime.bootstrap", f"stored_program:{program}"]
            with log.open("a") as file:  # not a pipe, which is full when nobody reads it
                running.append(subprocess.Popen(node, env=environ, stdout=file, stderr=file))
        _until_one_fails_or_all_end(running)
    finally:
        for each in running:
            each.kill()
            each.wait()
    return [each.returncode for each in running], log.read_text()


def _until_one_fails_or_all_end(running: list[subprocess.Popen[str]]) -> None:
    """Gives the others what a launcher gives them after a failure: a moment, and then their end."""
    while any(each.poll() is None for each in running):
        if any(each.poll() for each in running):
            time.sleep(5)
            return
        time.sleep(0.05)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 2)])
def test_every_array_comes_back_on_another_number_of_machines(
    before: int, after: int, bucket: str, tmp_path: Path
) -> None:
    output = f"s3://{bucket}/job"
    codes, said = train(tmp_path, output, before, {"steps": 3})
    assert set(codes) == {0}, said
    assert complete(open_store(output, os.environ), "checkpoints") == ["2", "3"]
    codes, said = train(tmp_path, output, after, {"steps": 1})
    assert set(codes) == {0}, said
    assert '"first":3' in said.replace(" ", "")
    assert complete(open_store(output, os.environ), "checkpoints") == ["3", "4"]


def test_a_killed_job_goes_on_elsewhere_and_half_a_checkpoint_is_not_one(
    bucket: str, tmp_path: Path
) -> None:
    output = f"minio://{bucket}/job"
    codes, said = train(tmp_path, output, 1, {"steps": 9, "die_at": 4})
    assert codes == [-signal.SIGKILL], said
    store = open_store(output, os.environ)
    store.put("checkpoints/5/default/half", b"of it")  # as a process killed in mid-copy leaves it
    codes, said = train(tmp_path, output, 1, {"steps": 1})
    assert codes == [0], said
    assert '"first":4' in said.replace(" ", "")
    assert complete(store, "checkpoints") == ["4", "5"]
    assert store.get_if_there("checkpoints/5/default/half") is None


def test_a_damaged_checkpoint_is_passed_over_and_replaced(bucket: str, tmp_path: Path) -> None:
    output = f"s3://{bucket}/job"
    assert train(tmp_path, output, 1, {"steps": 3})[0] == [0]
    store = open_store(output, os.environ)
    listed = json.loads(store.get(f"checkpoints/3/{MARKER}"))["files"]
    victim = max(listed, key=lambda file: int(file["size"]))
    store.put(f"checkpoints/3/{victim['name']}", b"x" * victim["size"])
    codes, said = train(tmp_path, output, 1, {"steps": 1})
    assert codes == [0], said
    assert "going on from the checkpoint of step 2" in said
    assert "SHA-256 differs" in said
    assert '"first":2' in said.replace(" ", "")
    download(store, "checkpoints/3", tmp_path / "3")


def test_split_state_is_refused_by_name(bucket: str, tmp_path: Path) -> None:
    codes, said = train(tmp_path, f"s3://{bucket}/job", 2, {}, "split")
    assert 64 in codes, said
    assert "is split between processes" in said


@pytest.fixture
def store(bucket: str) -> Store:
    return open_store(f"s3://{bucket}/some/where", os.environ)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    (made / "nested" / "deeper").mkdir(parents=True)
    (made / "large").write_bytes(os.urandom(20_000_001))
    (made / "empty").write_bytes(b"")
    (made / "nested" / "a name, with ü & %20").write_bytes(b"odd")
    for number in range(300):
        (made / "nested" / "deeper" / f"{number}").write_bytes(os.urandom(100))
    return made


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_folder_comes_back_as_it_was(store: Store, folder: Path, tmp_path: Path) -> None:
    upload(store, folder, "f")
    download(store, "f", tmp_path / "back")
    assert content(tmp_path / "back") == content(folder)


def test_only_what_is_missing_is_sent_again(store: Store, folder: Path) -> None:
    assert upload(store, folder, "f") > 20_000_000
    assert upload(store, folder, "f") == 0
    store.delete([f"f/{MARKER}", "f/nested/deeper/7"])  # as an upload that was killed
    (folder / "nested" / "deeper" / "8").write_bytes(b"!" * 100)  # as large as before
    (folder / "empty").unlink()
    assert upload(store, folder, "f") == 200
    assert {found.name.removeprefix("f/") for found in store.objects("f")} == {
        *content(folder),
        MARKER,
    }


def test_a_folder_with_a_longer_name_beside_it_is_another(store: Store, folder: Path) -> None:
    upload(store, folder / "nested" / "deeper", "1")
    upload(store, folder / "nested" / "deeper", "10")
    remove(store, "1")
    assert complete(store) == ["10"]
    assert not is_complete(store, "1")


def test_a_list_that_names_a_file_elsewhere_is_refused(store: Store, tmp_path: Path) -> None:
    for name in ("../out", "/etc/out", "a/../../out", ""):
        listed = {"files": [{"name": name, "size": 1, "sha256": "0" * 64}]}
        store.put(f"f/{MARKER}", json.dumps(listed).encode())
        with pytest.raises(StoreError, match="outside its folder"):
            download(store, "f", tmp_path / "here")
    assert not (tmp_path / "out").exists()


def test_a_server_that_dies_in_mid_upload_and_comes_back_gets_the_rest(
    tmp_path: Path, folder: Path
) -> None:
    server = S3Server(tmp_path / "server")
    try:
        store = open_store(f"s3://{server.bucket()}/x", server.environ())
        for number in range(12):
            (folder / f"large-{number}").write_bytes(os.urandom(30_000_000))
        ended: list[int] = []
        sending = threading.Thread(
            target=lambda: ended.append(upload(store, folder, "f")),
            daemon=True,  # it tries for minutes, which a test that has failed is not to wait for
        )
        sending.start()
        while sum(1 for _ in store.objects("f")) < 5:
            time.sleep(0.01)
        server.kill()
        assert sending.is_alive()
        time.sleep(2)
        server.start()
        assert not is_complete(store, "f") or not sending.is_alive()
        sending.join(120)
        assert ended
        download(store, "f", tmp_path / "back")
        assert content(tmp_path / "back") == content(folder)
    finally:
        server.kill()
