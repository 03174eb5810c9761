"""Runs `aes-rl` many times per second: a process that has imported all modules forks a child per command.

A child behaves like the command `aes-rl`: it has its own session, standard streams and working directory. The server
monitors its memory, time and processes, and kills all of them if they exceed a limit.
"""

import atexit
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import aes_rl

ROOT = Path(__file__).parents[1]
MOST_MEMORY = 2_000_000_000
"""Bytes of resident memory at which a child is killed."""
MOST_PROCESSES = 40
"""Number of processes of a child at which all of them are killed."""
_MOST_FILE = 1_000_000_000
_POLL_SECONDS = 0.01
_EXIT_SECONDS = 5.0
"""Time that the processes of a child have to exit after it."""


class Limits(NamedTuple):
    """Limits of a command."""

    seconds: float = 20.0
    """Time after which it is killed."""
    terminate_at: tuple[float, ...] = ()
    """Seconds at which it is sent SIGTERM."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    """Its exit code, or minus the signal that ended it."""
    seconds: float
    peak_bytes: int
    """Peak resident memory of the command or of a process that it waited for."""
    excess: str | None
    """The limit that it exceeded and was killed for: time, memory or processes."""
    left: int
    """Number of processes that did not exit after it and were killed."""


class ForkServer:
    """The client of the server. It runs one command at a time."""

    def __init__(self) -> None:
        variables = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        variables.setdefault("MUJOCO_GL", "egl")
        places = [str(Path(aes_rl.__file__).parents[1]), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables["PYTHONPATH"] = os.pathsep.join(places)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables,
            text=True,
            bufsize=1,
        )

    def prepare(self, function: str, *arguments: str) -> None:
        """Call module:function in the server itself, so that children inherit what it has imported and compiled."""
        self._send({"call": function, "arguments": arguments})
        answer = self._receive()
        if answer["failure"]:
            raise RuntimeError(answer["failure"])

    def start(
        self,
        argv: Sequence[str],
        directory: Path,
        output: Path,
        limits: Limits | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> int:
        """Start `aes-rl argv` in a directory and return its pid; `output` gets the files `stdout` and `stderr`."""
        self._send(
            {
                "argv": list(argv),
                "directory": str(directory),
                "output": str(output),
                "limits": limits or Limits(),
                "variables": dict(variables or {}),
            }
        )
        return int(self._receive()["pid"])

    def wait(self) -> Ended:
        """Wait until the command has ended."""
        return Ended(**self._receive())

    def run(self, *arguments: Any, **options: Any) -> Ended:
        """Start a command and wait until it has ended."""
        self.start(*arguments, **options)
        return self.wait()

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the fork server died (exit code {self._process.wait()})")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serve() -> None:
    """The server: one request per line, one or two answers per request."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # output of the called functions must not mix with the answers
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        if "call" in request:
            print(json.dumps({"failure": _called(request["call"], request["arguments"])}), file=answers)
            continue
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # garbage collection in a child would copy the memory that it shares with this process
        child = os.fork()
        if child == 0:
            answers.close()
            _exit(_command(request))
        print(json.dumps({"pid": child}), file=answers)
        print(json.dumps(_watched(child, Limits(*request["limits"]))._asdict()), file=answers)


def _called(function: str, arguments: list[str]) -> str | None:
    module, _, name = function.partition(":")
    try:
        getattr(import_module(module), name)(*arguments)
    except Exception:
        return traceback.format_exc()
    return None


def _command(request: dict[str, Any]) -> Any:
    """In the child: run a command and return its exit code, as for `sys.exit`."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE, _MOST_FILE))
    os.chdir(request["directory"])
    _redirect(Path(request["output"]))
    os.environ.update(request["variables"])
    # As in `python -m aes_rl`, which searches the working directory for modules first.
    sys.path[:0] = ["", *filter(None, request["variables"].get("PYTHONPATH", "").split(os.pathsep))]
    from aes_rl.cli import main

    try:
        main(request["argv"])
    except SystemExit as end:
        return end.code
    except KeyboardInterrupt:
        return 130
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _exit(code: Any) -> NoReturn:
    """Exit as the interpreter does, without the clean-up of modules, which takes a second."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _redirect(output: Path) -> None:
    for descriptor, path in ((0, "/dev/null"), (1, str(output / "stdout")), (2, str(output / "stderr"))):
        handle = os.open(path, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, descriptor)
        os.close(handle)
    # The server reads its standard input ahead; the child must not read what is left in the buffer.
    sys.stdin = os.fdopen(0, closefd=False)


def _watched(child: int, limits: Limits) -> Ended:
    began, excess, polls = time.monotonic(), None, 0
    terminations = list(limits.terminate_at)
    handle = os.pidfd_open(child)
    ending = select.poll()
    ending.register(handle, select.POLLIN)
    while not ending.poll(1000 * _POLL_SECONDS):
        seconds = time.monotonic() - began
        polls += 1
        if terminations and seconds > terminations[0]:
            terminations.pop(0)
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        if seconds > limits.seconds:
            excess = "time"
        elif _resident(child) > MOST_MEMORY:
            excess = "memory"
        elif polls % 50 == 0 and len(_session(child)) > MOST_PROCESSES:
            excess = "processes"
        if excess:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            break
    _, status, usage = os.wait4(child, 0)
    seconds = time.monotonic() - began
    os.close(handle)
    left = _end_session(child, 0.0 if excess else _EXIT_SECONDS)
    peak = 1024 * usage.ru_maxrss
    if excess is None and peak > MOST_MEMORY:
        excess = "memory"
    return Ended(os.waitstatus_to_exitcode(status), seconds, peak, excess, 0 if excess else left)


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0  # it has ended


def _session(child: int) -> list[int]:
    """The processes of a child: all processes in its session."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):
                continue  # it has ended
            if int(session) == child and state != "Z":
                found.append(int(path.name))
    return found


def _end_session(child: int, seconds: float) -> int:
    """Wait for the processes of a child to exit, then kill the others; return the number of processes killed."""
    until = time.monotonic() + seconds
    while (left := _session(child)) and time.monotonic() < until:
        time.sleep(0.05)
    for process in left:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(left)


if __name__ == "__main__":
    serve()
