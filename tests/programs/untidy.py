"""A program that leaves its process in disorder; run by tests/integration/test_warm_drills.py."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from kfp_jax_runtime import Run, Stopped

os.environ["SET_BY_IMPORT"] = "kept"
trials = 0


@dataclass(frozen=True)
class Untidy:
    how: str = ""
    seconds: float = 0.0
    say: str = ""


def main(run: Run, config: Untidy) -> dict[str, float]:
    global trials
    trials += 1
    print("pid:", os.getpid(), flush=True)
    print("variables:", os.environ.get("LEAKED"), os.environ.get("SET_BY_IMPORT"))
    print("folder:", Path.cwd())
    print("mask:", oct(os.umask(0o022)))
    print("alarm:", signal.getsignal(signal.SIGALRM) is signal.SIG_DFL, len(warnings.filters))
    print("path:", "/leaked" in sys.path)
    print("draw:", random.random())
    for turn in range(int(config.seconds * 100)):
        if run.stop_requested:
            raise Stopped(turn)
        if config.say:
            print(config.say, flush=True)
        time.sleep(0.01)
    if config.how:
        globals()[config.how](run)
    return {"pid": os.getpid(), "trials": trials}


def leak(run: Run) -> None:
    os.environ["LEAKED"] = "1"
    del os.environ["SET_BY_IMPORT"]
    os.chdir("/")
    os.umask(0o077)
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 5.0)  # more than a process of its own needs to end
    warnings.simplefilter("ignore")
    sys.path.insert(0, "/leaked")
    sys.argv.append("more")
    random.seed(1)


def without_newline(run: Run) -> None:
    sys.stdout.write("no newline")


def native_print(run: Run) -> None:
    import ctypes

    ctypes.CDLL(None).printf(b"from C\n")


def close_streams(run: Run) -> None:
    print("closing")
    sys.stdout.close()
    sys.stderr.close()


def close_descriptors(run: Run) -> None:
    os.close(1)
    os.close(2)


def replace_streams(run: Run) -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def daemon_thread(run: Run) -> None:
    def shout() -> None:
        while True:
            os.write(1, b"stray thread\n")
            time.sleep(0.01)

    threading.Thread(target=shout, daemon=True).start()


def thread_to_wait_for(run: Run) -> None:
    def speak() -> None:
        time.sleep(0.5)
        print("the thread's last words", flush=True)

    threading.Thread(target=speak).start()


def idle_pool(run: Run) -> None:
    from concurrent.futures import ThreadPoolExecutor

    run.pool = ThreadPoolExecutor(2)  # type: ignore[attr-defined]
    globals()["kept_pool"] = run.pool  # type: ignore[attr-defined]
    list(run.pool.map(str, range(9)))  # type: ignore[attr-defined]


def child(run: Run) -> None:
    subprocess.Popen(["sleep", "600"])


def grandchild(run: Run) -> None:
    subprocess.run(["sh", "-c", "sleep 600 &"], check=True)


def open_files(run: Run) -> None:
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 256), _))
    for _ in range(200):
        os.open(os.devnull, os.O_RDONLY)


def much_memory(run: Run) -> None:
    globals()["kept_memory"] = b"x" * (1200 * 1024**2)


def jax_setting(run: Run) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    print("64 bits:", jax.numpy.zeros(()).dtype)


def jax_default(run: Run) -> None:
    import jax.numpy as jnp

    print("64 bits:", jnp.zeros(()).dtype)


def exit_3(run: Run) -> None:
    sys.exit(3)


def exit_0(run: Run) -> None:
    sys.exit()


def exit_hard(run: Run) -> None:
    os._exit(7)


def interrupt(run: Run) -> None:
    raise KeyboardInterrupt


def fail(run: Run) -> None:
    raise ValueError("no such luck")


def kill(run: Run) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash(run: Run) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(run: Run) -> None:
    print("hanging", flush=True)
    time.sleep(600)


def hang_deaf(run: Run) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(run)


def own_handler(run: Run) -> None:
    def handle(number: int, frame: object) -> None:
        print("own handler", flush=True)
        raise SystemExit(9)

    signal.signal(signal.SIGTERM, handle)
    run.stop_requested  # noqa: B018 - so that nothing else ends it
    hang(run)
