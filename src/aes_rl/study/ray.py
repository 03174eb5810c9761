"""Populations as tasks of a Ray cluster, which shares the study's directory."""

import traceback
from pathlib import Path
from typing import Any

from typing_extensions import override

from aes_rl import extensions
from aes_rl.errors import UserError
from aes_rl.study.schedule import AbstractExecutor, AbstractJob

try:
    import ray
except ImportError as error:
    raise UserError("Ray is not installed; pip install 'aes-rl[ray]'") from error


class RayExecutor(AbstractExecutor):
    """Hands every population to the cluster at once; Ray decides where and when, by the resources it asks for."""

    most_jobs = 10**9

    def __init__(self, address: str | None = None, processors: float = 1.0, gpus: float = 0.0):
        """Join the cluster at `address`, or start one on this machine; resources are those of one population."""
        own = {"env_vars": extensions.as_environment()}
        ray.init(address=address, log_to_driver=False, include_dashboard=False, runtime_env=own)
        # The scheduler above retries, and counts; what a lost node leaves behind is continued from its checkpoint.
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
    def __init__(self, reference: Any):
        self._reference = reference

    @override
    def outcome(self) -> str | None:
        done, _ = ray.wait([self._reference], timeout=0)
        if not done:
            return None
        try:
            told: str = ray.get(self._reference)
        except Exception as error:  # the node died, or the process did
            return f"{type(error).__name__}: {error}"
        return told

    @override
    def stop(self) -> None:
        ray.cancel(self._reference)
        ray.wait([self._reference], timeout=60)

    @override
    def kill(self) -> None:
        ray.cancel(self._reference, force=True)


def _train(directory: str, threads: int) -> str:
    """What went wrong, or an empty string."""
    from aes_rl.study.worker import train_population

    try:
        train_population(Path(directory), threads)
    except Exception:
        return traceback.format_exc()
    return ""
