"""Runs that an older version began, directories that others use, and what a machine's cores are used for."""

import json
import multiprocessing
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import mujoco
import pytest
import torch
from filelock import FileLock

from aes_rl.agents import DDPG, SAC, make_agent
from aes_rl.backends import choose
from aes_rl.samplers import Predictive
from aes_rl.streams import Streams
from aes_rl.training import Interrupted, Runner, Training, run_files
from aes_rl.training.state import workers_for
from tests.training.checkpoints import rewrite_facts
from tests.training.test_runs import finish, stop_at

SMALL = Training(
    task="InvertedPendulum-v5",
    samplers=("uniform",),
    env_steps=60,
    capacity=50,
    evaluate_every=60,
    evaluation_episodes=1,
    checkpoint_every=60,
    measure_variance_every=20,
    measured_slots=20,
    sac=SAC(hidden=(4, 4), batch_size=4, warm_up_steps=10),
)


def test_a_run_stopped_between_two_rows_of_metrics_writes_the_same(tmp_path) -> None:
    config = replace(SMALL, log_every=20)
    for name, stop in (("whole", None), ("stopped", 33)):
        runner = Runner(config, tmp_path / name)
        for step in runner.steps():
            if step.env_step == stop:
                runner.save()
                break
        runner.close()
    assert any(runner.state.returns), "nothing to lose"
    finish(config, tmp_path / "stopped")
    whole, stopped = ((tmp_path / name / "metrics.csv").read_text() for name in ("whole", "stopped"))
    assert "training_return" in whole
    assert stopped == whole


def test_continuing_with_another_mujoco_gives_a_warning(tmp_path) -> None:
    stop_at(30, SMALL, tmp_path / "run")
    (path,) = (tmp_path / "run" / "checkpoint").glob("*/facts.json")
    assert json.loads(path.read_text())["mujoco"] == mujoco.__version__
    rewrite_facts(tmp_path / "run", mujoco="3.4.0")
    with pytest.warns(UserWarning, match=r"saved with MuJoCo 3\.4\.0.*pip install mujoco==3\.4\.0"):
        Runner(SMALL, tmp_path / "run").close()
    stop_at(30, replace(SMALL, task="Pendulum-v1"), tmp_path / "another simulator")
    (path,) = (tmp_path / "another simulator" / "checkpoint").glob("*/facts.json")
    assert json.loads(path.read_text())["mujoco"] is None


def test_two_runners_do_not_write_into_one_directory(tmp_path) -> None:
    first = Runner(SMALL, tmp_path / "run")
    with pytest.raises(RuntimeError, match="another process"):
        Runner(SMALL, tmp_path / "run", lock_timeout=0.0)
    closing = threading.Thread(target=first.close)  # by whichever thread
    closing.start()
    closing.join()
    Runner(SMALL, tmp_path / "run", lock_timeout=0.0).close()
    del first  # held until here: closed is enough, it need not be gone


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_runner_that_waited_for_the_lock_checks_the_directory_again(is_taken, tmp_path, monkeypatch) -> None:
    waits, acquire = threading.Event(), FileLock.acquire

    def acquire_and_tell(lock):
        if threading.current_thread() is not threading.main_thread():
            waits.set()
        return acquire(lock)

    monkeypatch.setattr(FileLock, "acquire", acquire_and_tell)
    with ThreadPoolExecutor(1) as others:
        with run_files.exclusive_use(tmp_path / "run", 0.0):
            waiting = others.submit(Runner, SMALL, tmp_path / "run")
            assert waits.wait(60)
            if is_taken:
                run_files.write_config(tmp_path / "run", replace(SMALL, capacity=49))
        if is_taken:
            with pytest.raises(ValueError, match="another configuration"):
                waiting.result()
        else:
            waiting.result().close()


def test_a_misspelt_task_leaves_nothing_behind(tmp_path) -> None:
    with pytest.raises(ValueError, match="Reacher-v99"):
        Runner(replace(SMALL, task="Reacher-v99"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_runner_that_could_not_start_releases_its_resources(tmp_path, monkeypatch) -> None:
    config, before = replace(SMALL, tensorboard=True, workers=1), set(multiprocessing.active_children())
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torch.utils.tensorboard", None)
        with pytest.raises(ValueError, match="TensorBoard") as told:
            Runner(config, tmp_path / "run")
    begun = set(multiprocessing.active_children()) - before
    for process in begun:
        process.join(30)
    assert not any(process.is_alive() for process in begun)
    Runner(config, tmp_path / "run", lock_timeout=0.0).close()
    del told  # until here it held the runner's frame


def test_interrupted_can_be_pickled() -> None:
    told = pickle.loads(pickle.dumps(Interrupted(15)))
    assert told.exit_code == 143
    assert str(told) == "stopped by signal 15"


def test_options_of_what_is_not_used_do_not_make_another_run(tmp_path) -> None:
    other = replace(SMALL, ddpg=DDPG(batch_size=7), sampler={"predictive": Predictive(memory=9)})
    run_files.write_config(tmp_path, other)
    run_files.settled(tmp_path, SMALL)
    run_files.write_config(tmp_path, replace(SMALL, sac=SAC(hidden=(4, 4), batch_size=5, warm_up_steps=10)))
    with pytest.raises(ValueError, match="another configuration"):
        run_files.settled(tmp_path, SMALL)
    used = replace(SMALL, samplers=("predictive",))
    run_files.write_config(tmp_path, replace(used, sampler=other.sampler))
    with pytest.raises(ValueError, match="another configuration"):
        run_files.settled(tmp_path, used)


def test_an_older_configuration_is_read(tmp_path) -> None:
    """Without the options that came since."""
    known = asdict(SMALL)
    del known["trace_every"], known["traced_slots"], known["sampler"]["last_value"], known["sac"]["entropy_tuning"]
    (tmp_path / "config.json").write_text(json.dumps(known))
    assert run_files.read_config(tmp_path) == SMALL


@pytest.mark.parametrize(
    ("environments", "cores", "expected"),
    [(1, 16, 0), (2, 16, 0), (14, 16, 14), (15, 16, 8), (20, 16, 10), (60, 16, 12), (5, 2, 2), (3, 1, 2)],
)
def test_the_fewest_workers_of_equal_speed(environments, cores, expected, monkeypatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert workers_for(environments, "Hopper-v5") == expected


@pytest.mark.parametrize("is_tuned", [True, False])
def test_a_fixed_temperature_stays(is_tuned) -> None:
    config = SAC(hidden=(4, 4), batch_size=8, entropy_tuning=is_tuned, initial_entropy_coefficient=0.2)
    backend = choose("torch", "cpu")
    agent = make_agent(config, 3, 2, Streams([0, 1], backend))
    generator = torch.Generator().manual_seed(0)
    from aes_rl.replay.storage import Storage
    from aes_rl.types import Transition

    storage = Storage(2, 8, 3, 2, backend, torch.float32)
    for slot in range(8):
        fields = [torch.rand(2, *shape, generator=generator) for shape in ((3,), (2,), (), (3,), ())]
        packed, _ = storage.pack(Transition(*fields))
        storage.write(torch.full((2, 1), slot), packed)
    batch = storage.read(torch.arange(8).expand(2, 8))
    for _ in range(3):
        noise = torch.randn(2, agent.noise_size(8), generator=generator)
        agent.update(batch, torch.ones(2, 8), noise, None)
    assert torch.allclose(agent.log_temperature.exp(), torch.tensor(0.2)) == (not is_tuned)
