"""What a job may change of the process that it runs in, and putting it back."""

import concurrent.futures.thread
import contextlib
import ctypes
import gc
import importlib.util
import io
import os
import random
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

_SMALL_BYTES = 1024**3
_GROWS_TO = 3  # times its size after the first job; only what jobs leave behind gets it there
_DEADLY_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def redirect(path: str) -> None:
    """Lets stdout and stderr, of this process and of its children, go to the end of a file."""
    _flush()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    if file > 2:  # a job may have closed one of the three
        os.close(file)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    # What native code has printed waits in a buffer of C's.
    ctypes.CDLL(None).fflush(None)


class ProcessState:
    """This process as a job finds it: remembered before the job, restored after it."""

    def __init__(self) -> None:
        self._directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._handlers = {
            number: handler
            for number in signal.valid_signals()
            if (handler := signal.getsignal(number)) is not None  # None: native code's own
        }
        self._streams = (sys.stdout, sys.stderr)
        self._jax = _JaxSettings()
        self._frozen = False
        self._first_size = 0
        self._environ: dict[str, str] = {}
        self._path: list[str] = []
        self._umask = 0
        self._filters: Any = None
        self._threads: frozenset[threading.Thread] = frozenset()

    def remember(self) -> None:
        """Takes down how things are."""
        self._environ = dict(os.environ)
        self._path = list(sys.path)
        self._umask = os.umask(0o022)
        os.umask(self._umask)
        self._filters = warnings.filters[:]
        self._threads = frozenset(threading.enumerate())
        self._jax.remember()

    def begin(self, environ: Mapping[str, str], argv: Sequence[str]) -> None:
        """Gives a job its variables and arguments, and random numbers of its own."""
        os.environ.update(environ)
        sys.argv = list(argv)
        random.seed()
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()

    def restore(self) -> bool:
        """Puts back what was remembered; returns False where something cannot be."""
        signal.set_wakeup_fd(-1)
        for timer in _DEADLY_TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            if signal.getsignal(number) not in (handler, None):
                signal.signal(number, handler)
        for name in os.environ.keys() - self._environ.keys():
            del os.environ[name]
        for name, value in self._environ.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        os.fchdir(self._directory)
        os.umask(self._umask)
        sys.path[:] = self._path
        warnings.resetwarnings()  # forgets what was shown once
        cast(list[Any], warnings.filters)[:] = self._filters
        self._restore_streams()
        gc.collect()  # closes the files that nothing refers to any more
        if not self._frozen:
            # Modules and compiled code, which stay: looking through them takes a tenth of a second.
            self._frozen = True
            gc.freeze()
        settings = self._jax.restore()
        threads = set(threading.enumerate()) - self._threads
        return (
            settings
            and all(map(_is_harmless, threads))
            and _has_room_for_files()
            and self._has_room_for_memory()
        )

    def _has_room_for_memory(self) -> bool:
        """Returns whether this process is not much larger than after its first job."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        size = pages * resource.getpagesize()
        self._first_size = self._first_size or size
        return size < max(_SMALL_BYTES, _GROWS_TO * self._first_size)

    def _restore_streams(self) -> None:
        """Gives back the streams as they were, new ones in the place of those that were closed."""
        _flush()
        self._streams = (_opened(self._streams[0], 1), _opened(self._streams[1], 2))
        sys.stdout, sys.stderr = self._streams


def _opened(stream: Any, descriptor: int) -> Any:
    if not stream.closed:
        return stream
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _has_room_for_files() -> bool:
    """Returns whether jobs have left open less than half of the files that a process may have."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * sum(1 for _ in Path("/proc/self/fd").iterdir()) < most


def _is_harmless(thread: threading.Thread) -> bool:
    """Returns whether a thread that a job left behind does nothing, or not for that job."""
    if type(thread).__module__ == "tqdm._monitor":
        return True  # one for all progress bars of a process
    frame = sys._current_frames().get(thread.ident or 0)
    # The innermost frame of a pool's thread that waits for work is the pool's own.
    return frame is None or frame.f_code.co_filename == concurrent.futures.thread.__file__


def is_alone() -> bool:
    """Returns whether no process that a job started, or that those started, runs any more."""
    group = os.getpgrp()
    ours = (os.getpid(), group)  # the group's leader is the launcher's guard
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) in ours:
            continue
        with contextlib.suppress(OSError):
            # After the name, which may hold anything in its parentheses: state, parent, group.
            state, _, found = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(found) == group and state != "Z":
                return False
    return True


class _JaxSettings:
    """JAX's settings; what they are at first is known from when JAX was imported, if it was."""

    def __init__(self) -> None:
        self._values: dict[str, Any] | None = None
        sys.meta_path.insert(0, _WhenImported("jax", self.remember))

    def remember(self) -> None:
        if jax := sys.modules.get("jax"):
            self._values = dict(jax.config.values)

    def restore(self) -> bool:
        jax = sys.modules.get("jax")
        if jax is None or self._values is None:
            return jax is None
        try:
            for name, value in jax.config.values.items():
                if value != self._values[name]:
                    jax.config.update(name, self._values[name])
        except Exception:  # noqa: BLE001 - whatever the reason, this process is not as it was
            return False
        return not jax.distributed.is_initialized()


class _WhenImported(MetaPathFinder):
    """Calls a function once, right after a module was imported."""

    def __init__(self, name: str, call: Any) -> None:
        self._name = name
        self._call = call

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingLoader(spec.loader, self._call)
        return spec


class _CallingLoader(Loader):
    def __init__(self, loader: Loader, call: Any) -> None:
        self._loader = loader
        self._call = call

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module is to know its own loader alone, which can say more than this one.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._call()
