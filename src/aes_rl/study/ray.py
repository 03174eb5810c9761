"""Run groups as tasks of a Ray cluster whose nodes share the study's directory."""

import traceback
from pathlib import Path

import ray
from typing_extensions import override

from aes_rl import extensions
from aes_rl.study.schedule import AbstractExecutor, AbstractJob


class RayExecutor(AbstractExecutor):
    """Submits all groups to the cluster at once; Ray decides where and when they run, by the requested resources."""

    most_jobs = 10**9

    def __init__(self, address: str | None = None, processors: float = 1.0, gpus: float = 0.0):
        """Join the cluster at `address`, or start one on this machine; the resources are per group."""
        environment = {"env_vars": extensions.as_environment()}
        ray.init(address=address, log_to_driver=False, include_dashboard=False, runtime_env=environment)
        # Retries are counted by the study's scheduler; a group of a lost node resumes from its checkpoint.
        options = {"num_cpus": processors, "num_gpus": gpus, "max_retries": 0}
        self._train = ray.remote(_train).options(**options)
        self._threads = max(1, int(processors))

    @override
    def start(self, directory: Path) -> AbstractJob:
        return _Task(self._train.remote(str(directory.resolve()), self._threads))

    @override
    def close(self) -> None:
        ray.shutdown()


class _Task(AbstractJob):
    def __init__(self, reference: "ray.ObjectRef[str]"):
        self._reference = reference

    @override
    def outcome(self) -> str | None:
        done, _ = ray.wait([self._reference], timeout=0)
        if not done:
            return None
        try:
            outcome: str = ray.get(self._reference)
        except Exception as error:  # the node or the process died
            return f"{type(error).__name__}: {error}"
        return outcome

    @override
    def stop(self) -> None:
        ray.cancel(self._reference)
        ray.wait([self._reference], timeout=60)

    @override
    def kill(self) -> None:
        ray.cancel(self._reference, force=True)


def _train(directory: str, threads: int) -> str:
    """The traceback of an error, or an empty string."""
    from aes_rl.study.worker import train_group

    try:
        train_group(Path(directory), threads)
    except Exception:
        return traceback.format_exc()
    return ""
