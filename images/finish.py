"""Makes an installed environment small and always the same; runs in the build of an image.

    python finish.py prune ENVIRONMENT
    ENVIRONMENT/bin/python finish.py compile ENVIRONMENT OWN [--without NAME ...]

`prune` takes out what only the packages' own developers use: their tests, headers, type stubs. What
is left is as its wheel had it. `compile` imports all that our package imports, from the folder OWN
where it is installed, and compiles what that loaded, and nothing else: half of an image would be
byte code that nobody runs. It fails if something does not import, or if a package lacks another but
those left out on purpose.
"""

import argparse
import ast
import importlib
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

OWN_PACKAGES = ("kfp_jax", "kfp_jax_pipelines", "kfp_jax_runtime", "kfp_jax_store")
DEVELOPERS_FOLDERS = ("tests", "include")
DEVELOPERS_FILES = ("a", "c", "cc", "cpp", "f", "h", "hpp", "lib", "pxd", "pyi", "pyx")
# Its headers are for kernels, which are compiled when a program runs.
COMPILERS = ("nvidia",)
# Loaded by name when a plot is saved.
BY_NAME = ("matplotlib.backends.backend_svg", "matplotlib.backends.backend_agg")


def packages_of(environment: Path) -> Path:
    """Returns the folder with an environment's packages."""
    (found,) = environment.glob("lib/python3*/site-packages")
    return found


def prune(packages: Path) -> int:
    """Removes what a program does not use; returns how many bytes that were."""
    before = size(packages)
    for name in DEVELOPERS_FOLDERS:
        for folder in sorted(packages.rglob(name)):
            if folder.is_dir() and top(folder, packages) not in COMPILERS:
                shutil.rmtree(folder)
    for suffix in DEVELOPERS_FILES:
        for file in packages.rglob(f"*.{suffix}"):
            if top(file, packages) not in COMPILERS:
                file.unlink()
    forget_wheels(packages)
    return before - size(packages)


def top(path: Path, packages: Path) -> str:
    """Returns the package that a path belongs to."""
    return path.relative_to(packages).parts[0]


def forget_wheels(packages: Path) -> None:
    """Removes where the wheels were while they were installed."""
    for file in packages.glob("*.dist-info/direct_url.json"):
        file.unlink()


def size(folder: Path) -> int:
    """Returns the bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def own_modules(own: Path) -> Iterator[tuple[str, Path]]:
    """Yields the names and files of our modules."""
    for package in OWN_PACKAGES:
        for file in sorted((own / package).rglob("*.py")):
            parts = file.relative_to(own).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


def imports(file: Path) -> set[str]:
    """Returns the modules that a file imports, wherever in it; relative ones are not ours."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def load_all(own: Path) -> None:
    """Imports what our modules import, and them, as far as this image has it."""
    wanted = {name for name, _ in own_modules(own) if not name.endswith("__main__")}
    wanted |= {name for _, file in own_modules(own) for name in imports(file)}
    for name in sorted(wanted | set(BY_NAME)):
        if find_spec(name.partition(".")[0]) is None:
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            # The launcher has no JAX, and a training node has no KFP.
            if find_spec((error.name or "").partition(".")[0]) is not None:
                raise


def loaded(roots: Iterable[Path]) -> list[Path]:
    """Returns the source files below the roots that were loaded."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    paths = (Path(file) for file in files if file and file.endswith(".py"))
    return sorted(p for p in paths if any(p.is_relative_to(root) for root in roots))


def compile_loaded(own: Path, packages: Path) -> list[Path]:
    """Compiles what our package loads; the code names its files where they will be."""
    sys.path.insert(0, str(own))
    load_all(own)
    files = loaded((own, packages))
    for file in files:
        final = packages / file.relative_to(own) if file.is_relative_to(own) else file
        # Held to the source by its hash: an image on top may replace a file.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        py_compile.compile(str(file), dfile=str(final), doraise=True, invalidation_mode=mode)
    return files


def lacking(environment: Path, without: Iterable[str]) -> list[str]:
    """Returns what pip has against the environment, but for packages left out on purpose."""
    command = ["tools/bin/pip", "--python", str(environment / "bin" / "python"), "check"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    ends = tuple(f" requires {name}, which is not installed." for name in without)
    lines = (line for line in said.splitlines() if line != "No broken requirements found.")
    return [line for line in lines if not line.endswith(ends)]


def same_times(folder: Path) -> None:
    """Gives all in a folder the time of SOURCE_DATE_EPOCH."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def main() -> None:
    """Runs the step that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=("prune", "compile"))
    parser.add_argument("environment", type=Path)
    parser.add_argument("own", type=Path, nargs="?")
    parser.add_argument("--without", nargs="*", default=())
    given = parser.parse_args()
    packages = packages_of(given.environment)
    if given.step == "prune":
        print(f"pruned {prune(packages) / 1e6:.1f} MB of {packages}")
        return
    if complaints := lacking(given.environment, given.without):
        sys.exit("\n".join(complaints))
    own = packages_of(given.own)
    forget_wheels(own)
    print(f"compiled {len(compile_loaded(own, packages))} modules")
    for folder in (given.environment, given.own):
        same_times(folder)


if __name__ == "__main__":
    main()
