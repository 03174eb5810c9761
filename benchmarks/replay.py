"""The cost of replay against other libraries' buffers: `make bench-replay`.

One cycle is what an agent asks of its buffer in one step: store one transition, draw a batch of 256 with weights, hand
256 signals back, forgetting included (uniform peers have nothing to hand back). Every buffer is full, so that each
insertion overwrites. The contestants take turns in short rounds within one process, and the figure is the median over
rounds of the ratio of two neighbours in time: machines drift, ratios do not.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import cpprb
import gymnasium
import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from tianshou.data import Batch, PrioritizedReplayBuffer

from aes_rl import Replay, Signals, Transition

OBSERVATION, ACTION, BATCH = 17, 6, 256
"""HalfCheetah's sizes and SAC's batch."""
OURS = {"adaptive": "", "predictive": "_predictive"}
"""Our contestants, and what their keys in the result end with."""
RESULT = Path(__file__).parent / "results" / "replay.json"
README = Path(__file__).parent.parent / "README.md"
Cycle = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, default=1_000_000, help="slots of the comparison with the peers")
    parser.add_argument("--rounds", type=int, default=60, help="turns of every contestant")
    parser.add_argument("--cycles", type=int, default=100, help="cycles a turn")
    parser.add_argument(
        "--update", action="store_true", help="write the result to benchmarks/results and the README's table"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    print(f"filling five buffers of {arguments.capacity:,} slots", flush=True)
    peers = {"tianshou prioritized": tianshou, "cpprb prioritized": cpprb_prioritized, "sb3 uniform": sb3}
    contestants = {f"aes-rl {name}": ours(name, arguments.capacity) for name in OURS}
    contestants |= {name: make(arguments.capacity) for name, make in peers.items()}
    times = take_turns(contestants, arguments.rounds, arguments.cycles)
    del contestants
    speedups = {(own, peer): median_ratio(times[peer], times[f"aes-rl {own}"]) for own in OURS for peer in peers}

    sizes = {
        f"{name}, {slots:,} slots": ours(name, slots)
        for name in OURS
        for slots in (10_000, 100_000, 1_000_000, 10_000_000)
    }
    by_size = take_turns(sizes, arguments.rounds, arguments.cycles)
    del sizes

    for name, values in (times | by_size).items():
        print(f"{name:22} {statistics.median(values):8.1f} µs a cycle (median; fastest round {min(values):.1f})")
    result = {
        f"{key}{suffix}": value
        for own, suffix in OURS.items()
        for key, value in {
            "speedup_vs_best_prioritized_peer": min(
                speedups[own, "tianshou prioritized"], speedups[own, "cpprb prioritized"]
            ),
            "speedup_vs_sb3_uniform": speedups[own, "sb3 uniform"],
            "growth_10k_to_10m": median_ratio(by_size[f"{own}, 10,000,000 slots"], by_size[f"{own}, 10,000 slots"]),
            "overhead_bytes_per_slot": overhead_bytes(own, arguments.capacity),
        }.items()
    }
    for name, value in result.items():
        print(f"{name}: {value:.2f}")
    result |= {
        "median_us_a_cycle": {name: statistics.median(values) for name, values in (times | by_size).items()},
        "capacity": arguments.capacity,
        "rounds": arguments.rounds,
        "cycles_a_round": arguments.cycles,
        "machine": f"{platform.machine()}, {processor()}, 1 thread",
        "versions": {
            name: version(name)
            for name in ("aes-rl", "torch", "numpy", "numba", "tianshou", "cpprb", "stable-baselines3")
        }
        | {"python": platform.python_version()},
    }
    if arguments.update:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
        README.write_text(with_figures(README.read_text(), result))


def with_figures(text: str, result: dict[str, object]) -> str:
    """The README with its table between the markers made from a result."""
    rows = [
        ("faster than the best prioritized peer", "speedup_vs_best_prioritized_peer", "×"),
        ("faster than Stable-Baselines3's uniform buffer", "speedup_vs_sb3_uniform", "×"),
        ("time at ten million slots, relative to ten thousand", "growth_10k_to_10m", "×"),
        ("bytes per slot beside the transition itself", "overhead_bytes_per_slot", ""),
    ]
    cells = [
        f"| {label} | " + " | ".join(f"{result[key + suffix]:.1f}{unit}" for suffix in OURS.values()) + " |"
        for label, key, unit in rows
    ]
    table = "\n".join([f"| | {' | '.join(OURS)} |", "|---|---|---|", *cells])
    start, end = "<!-- replay-figures -->\n", "\n<!-- /replay-figures -->"
    return text[: text.index(start) + len(start)] + table + text[text.index(end) :]


def take_turns(contestants: dict[str, Cycle], rounds: int, cycles: int) -> dict[str, list[float]]:
    """Microseconds a cycle of every contestant in every round, after two rounds of warm-up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(-2, rounds):
        for name, cycle in contestants.items():
            start = time.perf_counter()
            for _ in range(cycles):
                cycle()
            if turn >= 0:
                times[name].append((time.perf_counter() - start) / cycles * 1e6)
    return times


def median_ratio(slower: list[float], faster: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(slower, faster, strict=True))


def ours(sampler: str, capacity: int) -> Cycle:
    replay = Replay([sampler], capacity=capacity, observation_size=OBSERVATION, action_size=ACTION, seeds=[0])
    generator = torch.Generator().manual_seed(0)
    observation, action, _ = peer_data()
    transition = Transition(
        observation[None], action[None], np.full(1, 0.5, np.float32), observation[None], np.zeros(1, np.float32)
    )
    replay.add(transition)
    fill(replay, capacity)
    reports = [
        Signals(gradient_norm={"critic": norms}) for norms in torch.rand(64, 1, BATCH, generator=generator) * 1000
    ]
    step = 0

    def cycle() -> object:
        nonlocal step
        step += 1
        replay.add(transition)
        batch, draw, weights, _ = replay.sample(BATCH)
        replay.feedback(draw, reports[step % 64])
        replay.advance(step)
        return batch.rows, weights

    return cycle


def fill(replay: Replay, capacity: int) -> None:
    """As many insertions would leave it; ten million of them take too long."""
    state = replay.state_dict()
    fresh_mass = state["sampler.distribution.masses"][0, 0].item()
    state["rows"][:] = state["rows"][:, :1].clone()
    state["sampler.distribution.masses"].fill_(fresh_mass)
    state["sampler.distribution.clock"] = torch.tensor(capacity)
    replay.load_state_dict(state)


def tianshou(capacity: int) -> Cycle:
    observation, action, errors = peer_data()
    buffer = PrioritizedReplayBuffer(capacity, alpha=0.6, beta=0.4)
    transition = Batch(
        obs=observation, act=action, rew=0.5, terminated=False, truncated=False, obs_next=observation, info={}
    )
    for _ in range(capacity):
        buffer.add(transition)

    def cycle() -> object:
        buffer.add(transition)
        batch, indices = buffer.sample(BATCH)
        buffer.update_weight(indices, errors)
        return batch

    return cycle


def cpprb_prioritized(capacity: int) -> Cycle:
    observation, action, errors = peer_data()
    shapes = {"obs": OBSERVATION, "act": ACTION, "rew": 1, "next_obs": OBSERVATION, "done": 1}
    buffer = cpprb.PrioritizedReplayBuffer(capacity, {name: {"shape": size} for name, size in shapes.items()})
    for _ in range(capacity):
        buffer.add(obs=observation, act=action, rew=0.5, next_obs=observation, done=0.0)

    def cycle() -> object:
        buffer.add(obs=observation, act=action, rew=0.5, next_obs=observation, done=0.0)
        batch = buffer.sample(BATCH, beta=0.4)
        buffer.update_priorities(batch["indexes"], errors)
        return batch

    return cycle


def sb3(capacity: int) -> Cycle:
    observation, action, _ = peer_data()
    box = gymnasium.spaces.Box
    buffer = ReplayBuffer(capacity, box(-1, 1, (OBSERVATION,)), box(-1, 1, (ACTION,)), device="cpu")
    row = (observation[None], observation[None], action[None], np.array([0.5]), np.array([False]), [{}])
    for _ in range(capacity):
        buffer.add(*row)

    def cycle() -> object:
        buffer.add(*row)
        return buffer.sample(BATCH)

    return cycle


def peer_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    observation = generator.standard_normal(OBSERVATION).astype(np.float32)
    action = generator.standard_normal(ACTION).astype(np.float32)
    return observation, action, np.abs(generator.standard_normal(BATCH))


def overhead_bytes(sampler: str, capacity: int) -> float:
    """What a slot costs beside the 42 numbers of its transition: all tensors of the replay, counted by storage."""
    replay = Replay([sampler], capacity=capacity, observation_size=OBSERVATION, action_size=ACTION, seeds=[0])
    storages = {value.untyped_storage().data_ptr(): value.untyped_storage() for value in replay.state_dict().values()}
    payload = (2 * OBSERVATION + ACTION + 2) * 4
    return sum(storage.nbytes() for storage in storages.values()) / capacity - payload


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
