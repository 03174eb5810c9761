import csv
import json

import numpy as np
import pytest


def write_run(directory, scores, task="Hopper-v5", agent="sac", env_steps=None, every=1000):
    """A run's files; `scores` maps (sampler, seed) to its evaluations."""
    directory.mkdir(parents=True)
    samplers, seeds = (list(dict.fromkeys(part)) for part in zip(*scores, strict=True))
    longest = max(len(own) for own in scores.values()) * every
    config = {"task": task, "agent": agent, "env_steps": env_steps or longest, "samplers": samplers, "seeds": seeds}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "manifest.json").write_text(json.dumps({"wall_seconds": 60.0}))
    with (directory / "evaluations.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["env_step", "update_step", "sampler", "seed", "mean_return"])
        for (sampler, seed), own in scores.items():
            for number, score in enumerate(own, 1):
                writer.writerow([number * every, number * every, sampler, seed, score])


@pytest.fixture
def study(tmp_path):
    """Two tasks and two agents with three samplers and three seeds, curves that rise by different amounts."""
    generator = np.random.default_rng(0)
    for task in ("Hopper-v5", "Reacher-v5"):
        for agent in ("ddpg", "sac"):
            scores = {}
            for number, sampler in enumerate(("uniform", "prioritized", "adaptive")):
                for seed in (2, 20, 200):
                    rise = np.linspace(0, 1000 + 100 * number, 20) + generator.normal(0, 30, 20)
                    scores[sampler, seed] = rise if task == "Hopper-v5" else rise / 100 - 40
            write_run(tmp_path / "study" / task / agent / "0", scores, task, agent)
    return tmp_path / "study"
