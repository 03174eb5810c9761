"""Small valid run directories, written by this program; mutants are made from copies of them."""

import shutil
from pathlib import Path

KINDS = ("sac", "ddpg")
_SAMPLERS = {"sac": ("uniform", "adaptive"), "ddpg": ("prioritized", "predictive")}
STEPS, STOPPED_AT = 120, 100
_CHECKPOINT_EVERY = 40


def finished(directory: Path, kind: str) -> Path:
    """The directory of a finished run."""
    return directory / f"{kind}-finished"


def stopped(directory: Path, kind: str) -> Path:
    """The directory of the same run, stopped before its end with a checkpoint."""
    return directory / f"{kind}-stopped"


def make(directory: str) -> None:
    """Make the runs below a directory and run every command once, so that forked processes have all modules."""
    place = Path(directory)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for kind in KINDS:
        _train(kind, stopped(place, kind), STOPPED_AT)
        shutil.copytree(stopped(place, kind), finished(place, kind))
        _train(kind, finished(place, kind), STEPS)
    _import_everything(place)


def _train(kind: str, directory: Path, until: int) -> None:
    from aes_rl.agents import DDPG, SAC
    from aes_rl.training import Runner, Training

    config = Training(
        task="InvertedPendulum-v5",
        agent="sac" if kind == "sac" else "ddpg",
        samplers=_SAMPLERS[kind],
        env_steps=STEPS,
        capacity=80,
        evaluate_every=_CHECKPOINT_EVERY,
        evaluation_episodes=2,
        log_every=20,
        measure_variance_every=_CHECKPOINT_EVERY,
        measured_slots=20,
        checkpoint_every=_CHECKPOINT_EVERY,
        sac=SAC(hidden=(8, 8), batch_size=8, warm_up_steps=20),
        ddpg=DDPG(hidden=(8, 8), batch_size=8, warm_up_steps=20),
    )
    runner = Runner(config, directory)
    for step in runner.steps():
        if step.env_step == until < STEPS:
            runner.save()
            break
    runner.close()


def _import_everything(place: Path) -> None:
    """Run the commands, except for rendering: a graphics context does not survive a fork."""
    import imageio  # noqa: F401

    from aes_rl.cli import main

    warm = place / "warm"
    shutil.copytree(finished(place, KINDS[0]), warm)
    for argv in (["evaluate"], ["report"], ["lab", "variance"], ["train"]):
        main([*argv, str(warm)])
    shutil.rmtree(warm)
