"""Do the agents learn? `make learn`: real tasks trained to a score, an hour or more on two cores; not part of CI.

Prints the best evaluation within the budget of every member and of the mean over seeds, and fails if a bar is missed. A
run ends once every member has reached its bar.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aes_rl.agents import DDPG, SAC
from aes_rl.training import Runner, Training


@dataclass(frozen=True)
class Bar:
    """A score that every member must reach within a number of environment steps."""

    config: Training
    score: float


SAMPLERS = ("uniform", "prioritized", "adaptive")
BARS = {
    "sac": Bar(
        Training(
            task="InvertedPendulum-v5",
            agent="sac",
            samplers=SAMPLERS,
            seeds=(0, 1),
            env_steps=10_000,
            updates_per_round=4,
            capacity=100_000,
            evaluate_every=500,
            sac=SAC(learning_rate=1e-3, initial_entropy_coefficient=0.1, warm_up_steps=1000),
        ),
        950,
    ),
    "ddpg": Bar(
        Training(
            task="InvertedPendulum-v5",
            agent="ddpg",
            samplers=SAMPLERS,
            seeds=(0, 1),
            env_steps=60_000,
            capacity=100_000,
            evaluate_every=1000,
            ddpg=DDPG(warm_up_steps=1000),
        ),
        900,
    ),
    "hopper": Bar(
        Training(
            task="Hopper-v5",
            agent="sac",
            samplers=("adaptive",),
            seeds=(0, 1),
            env_steps=100_000,
            capacity=1_000_000,
            evaluate_every=5000,
            # Those of the published curves that ours are compared with.
            sac=SAC(learning_rate=1e-3, entropy_tuning=False, initial_entropy_coefficient=0.2, warm_up_steps=10_000),
        ),
        1000,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bars", nargs="*", choices=[[], *BARS], help="which to run; all by default")
    parser.add_argument("--samplers", nargs="*", choices=SAMPLERS, help="only these of a bar's samplers")
    parser.add_argument("--device", default="cpu", help="where agents and replay live")
    parser.add_argument("--threads", type=int, default=2, help="threads of the learner")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    missed = False
    print(f"{'task':22} {'agent':6} {'sampler':12} {'seed':>5} {'best':>8} {'at step':>9} {'bar':>6}")
    for name in arguments.bars or BARS:
        bar = BARS[name]
        samplers = tuple(s for s in bar.config.samplers if not arguments.samplers or s in arguments.samplers)
        if not samplers:
            continue
        bar = replace(bar, config=replace(bar.config, samplers=samplers))
        for (sampler, seed), (score, step) in best_scores(bar, arguments.device).items():
            verdict = ""
            if seed != "mean":
                missed |= score < bar.score
                verdict = f"{bar.score:6.0f}" + ("" if score >= bar.score else "  missed")
            print(
                f"{bar.config.task:22} {bar.config.agent:6} {sampler:12} {seed:>5} {score:8.1f} {step:9,} {verdict}",
                flush=True,
            )
    sys.exit(int(missed))


def best_scores(bar: Bar, device: str) -> dict[tuple[str, str], tuple[float, int]]:
    """The best evaluation, and its step, of every member and of every sampler's mean over seeds."""
    best: dict[tuple[str, str], tuple[float, int]] = {}
    with tempfile.TemporaryDirectory() as directory:
        runner = Runner(replace(bar.config, device=device), Path(directory) / "run")
        for step in runner.steps():
            if step.env_step % bar.config.evaluate_every:
                continue
            scores = {(sampler, str(seed)): score for (sampler, seed), score in runner.scores.items()}
            scores |= {(sampler, "mean"): score for sampler, score in runner.mean_scores().items()}
            for key, score in scores.items():
                if key not in best or score > best[key][0]:
                    best[key] = (score, runner.scored_step)
            if all(score >= bar.score for (_, seed), (score, _) in best.items() if seed != "mean"):
                break
        runner.close()
    return best


if __name__ == "__main__":
    main()
