"""Files in folders that training code writes to: none of them leads the launcher elsewhere.

The launcher may do what a training may not: its pod has an account, and files of its own. A link
that bears the name of a result, or a path out of the folder, would have it read or change those.
"""

import errno
import os
import stat
from io import TextIOWrapper
from pathlib import Path
from typing import Literal

from kfp_jax.errors import OutputError


def open_text(path: Path, mode: Literal["r", "a", "x"]) -> TextIOWrapper:
    """Opens a text file, and nothing else that has its name: no link, pipe or device.

    Args:
        path: The file.
        mode: "r" to read, "a" to append, "x" to make one.

    Raises:
        OSError: It is not there, or is no file.
    """
    return open(path, mode, encoding="utf-8", opener=_only_files)


def _only_files(path: str, flags: int) -> int:
    # Without O_NONBLOCK a pipe that nobody writes to would be waited for.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file", path)
    return descriptor


def path_below(folder: Path, name: str, what: str) -> Path:
    """Returns the path of what a program says that it left in its folder.

    Raises:
        OutputError: It is elsewhere.
    """
    path = folder / name
    if ".." in Path(name).parts or not path.is_relative_to(folder) or path == folder:
        raise OutputError(
            f"{what} {name!r:.80} is not below {folder}; have the program write it there."
        )
    return path


def refuse_links(root: Path, what: str) -> None:
    """Refuses a file or folder that is a link out of its place, or holds one.

    Who copies or uploads it would take along what the link leads to. One within it is harmless.

    Raises:
        OutputError: There is such a link.
    """
    home = root.parent.resolve() / root.name
    below = (Path(at) / name for at, folders, files in os.walk(root) for name in folders + files)
    for path in (root, *below):
        if path.is_symlink() and (path == root or not path.resolve().is_relative_to(home)):
            raise OutputError(
                f"{what} {root} holds the link {path.name} to {path.readlink()}, which is not part"
                " of it; have the program copy the file there."
            )
