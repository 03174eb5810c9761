"""The same population on the CPU and on a GPU, and a captured graph against eager execution. Needs an NVIDIA GPU."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from aes_rl import Adaptive, Predictive, Prioritized, Replay, Signals, Transition, Uniform
from aes_rl.agents import DDPG, SAC, make_agent
from aes_rl.backends import SameStream
from aes_rl.training import Runner, RunState, Training, capture, train
from aes_rl.training.episode_worker import greedy_actions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # torch.compile has some of its own
]

SAMPLERS = [
    Uniform(),
    Prioritized(),
    Prioritized(overwrite="adaptive"),
    Adaptive(),
    Adaptive(nu="auto", forget_every=9),
    Predictive(refresh_every=10),
    Predictive(refresh_every=10, forecast="deviation"),
    Predictive(refresh_every=10, forecast="mean-and-last"),
]
SEPARATE = "predictive:networks=separate,forecast=deviation"
MEMBERS, OBSERVATION, ACTION, CAPACITY = len(SAMPLERS), 17, 6, 5000
AGENTS = {
    "sac": SAC(),
    "sac with value": SAC(value_function=True),
    "sac, critic first": SAC(critic_first=True, squashing_epsilon=1e-7),
    "sac, Adam's metric": SAC(norm_metric="adam"),
    "ddpg": DDPG(),
    "ddpg, action first": DDPG(critic_action_layer=0),
    "ddpg, critic first": DDPG(critic_first=True),
}


def replay_on(device, backend):
    """A full buffer, the same on every device."""
    replay = Replay(
        SAMPLERS,
        capacity=CAPACITY,
        observation_size=OBSERVATION,
        action_size=ACTION,
        seeds=range(MEMBERS),
        total_updates=1000,
        device=device,
        backend=backend,
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(CAPACITY + 500):
        shapes = [(OBSERVATION,), (ACTION,), (), (OBSERVATION,), ()]
        fields = [torch.randn(MEMBERS, *shape, generator=generator) for shape in shapes]
        fields[1], fields[4] = fields[1].tanh(), (fields[4] > 2).float()
        replay.add(Transition(*(field.to(device) for field in fields)))
    return replay


@pytest.fixture(scope="module")
def replays():
    return {"cpu": replay_on("cpu", "torch"), "cuda": replay_on("cuda", "triton")}


def test_first_draws_are_the_same_integers(replays) -> None:
    """Overwriting by 1 − p included: the buffers were full, and hold the same rows."""
    assert torch.equal(replays["cuda"].storage.rows.cpu(), replays["cpu"].storage.rows)
    for _ in range(20):
        samples = {device: replay.sample(256) for device, replay in replays.items()}
        assert torch.equal(samples["cuda"].draw.slots.cpu(), samples["cpu"].draw.slots)
        torch.testing.assert_close(samples["cuda"].weights.cpu(), samples["cpu"].weights)


def test_samplers_learn_the_same() -> None:
    """Feedback, forgetting and forecasts: the masses of every slot, from the same draws and signals."""
    cpu, cuda = replay_on("cpu", "torch"), replay_on("cuda", "triton")
    generator = torch.Generator().manual_seed(2)
    for step in range(1, 70):
        sample, other = cpu.sample(64), cuda.sample(64)
        assert torch.equal(other.draw.slots.cpu(), sample.draw.slots), step
        signal = torch.randn(MEMBERS, 64, generator=generator).exp()
        cpu.feedback(sample.draw, Signals(signal, {"critic": signal}))
        cuda.feedback(other.draw, Signals(signal.cuda(), {"critic": signal.cuda()}))
        cpu.advance(step)
        cuda.advance(step)
    torch.testing.assert_close(cuda.sampler.probabilities().cpu(), cpu.sampler.probabilities(), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("name", AGENTS)
def test_updates_on_the_same_draws_agree(replays, name) -> None:
    """Nine in ten entries of every parameter of every member after one update, and most members after fifty.

    The rest may be apart by rounding alone: where a unit's input is 4e-8, it is on here and off there, and Adam takes
    small gradients as large. First parameters that differ by 2e-7 do the same on the CPU.
    """
    config, cpu, cuda = AGENTS[name], replays["cpu"], replays["cuda"]
    agents = {device: make_agent(config, OBSERVATION, ACTION, replay.streams) for device, replay in replays.items()}
    generator = torch.Generator().manual_seed(1)
    apart = []
    for number in range(50):
        sample = cpu.sample(config.batch_size)
        noise = torch.randn(MEMBERS, agents["cpu"].noise_size(config.batch_size), generator=generator)
        batch = cuda.storage.read(sample.draw.slots.cuda())
        assert torch.equal(batch.rows.cpu(), sample.batch.rows)
        on_cpu = agents["cpu"].update(sample.batch, sample.weights, noise, cpu.norm_members)
        on_gpu = agents["cuda"].update(batch, sample.weights.cuda(), noise.cuda(), cpu.norm_members)
        apart.append(distances(agents["cuda"], agents["cpu"]))
        if number == 0:
            for key, norm in on_cpu.signals.gradient_norm.items():
                error = (on_gpu.signals.gradient_norm[key].cpu() - norm).abs() / norm.clamp(min=1e-30)
                assert float(error.quantile(0.9, dim=1).max()) < 1e-3, key
    one, fifty = (", ".join(f"{value:.0e}" for value in members.tolist()) for members in (apart[0], apart[-1]))
    print(f"{name}: members apart by {one} after one update, {fifty} after fifty")
    assert float(apart[0].max()) < 1e-5
    assert float(apart[-1].sort().values[MEMBERS // 2]) < 1e-4


def distances(agent, other):
    """Of every member, what nine in ten entries stay below, in the parameter where that is most."""
    found = agent.state_dict()
    apart = {
        key: (found[key].cpu() - value).abs().view(MEMBERS, -1).quantile(0.9, dim=1)
        for key, value in other.state_dict().items()
        if "optimiser" not in key and key != "noise"
    }
    return torch.stack(list(apart.values())).amax(0)


LIFE = """
import hashlib, sys, torch
from aes_rl import LastValue, Predictive, Replay, Signals, Transition

device = sys.argv[1]
samplers = [Predictive(refresh_every=5)] * 4 + [LastValue()]
replay = Replay(samplers, capacity=1000, observation_size=3, action_size=1, seeds=range(5), device=device,
                total_updates=20)
generator = torch.Generator().manual_seed(0)
for _ in range(1000):
    shapes = [(3,), (1,), (), (3,), ()]
    replay.add(Transition(*(torch.randn(5, *shape, generator=generator).to(device) for shape in shapes)))
for step in range(1, 21):
    _, draw, *_ = replay.sample(256)
    norms = torch.randn(5, 256, generator=generator).exp().to(device)
    replay.feedback(draw, Signals(norms, {"critic": norms}))
    replay.advance(step)
digest = hashlib.sha256()
for _, value in sorted(replay.state_dict().items()):
    digest.update(value.cpu().numpy().tobytes())
print(digest.hexdigest())
"""


def test_every_process_compiles_the_same_sums(tmp_path) -> None:
    """Were the order of a sum chosen by timing, four processes that compile anew would rarely agree on the last bit."""
    processes = []
    for number in range(4):
        caches = {name: str(tmp_path / f"{name}{number}") for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        words = [sys.executable, "-W", "ignore", "-c", LIFE, "cuda"]
        processes.append(subprocess.Popen(words, env=os.environ | caches, stdout=subprocess.PIPE, text=True))
    try:
        digests = {process.communicate(timeout=300)[0] for process in processes}
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes)
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("agent", "critic_first", "norm_metric"),
    [
        ("sac", False, "euclidean"),
        ("sac", True, "euclidean"),
        (
            "sac",
            False,
            "adam",
        ),  # by cuBLAS, of which actions and gradients must not share a workspace
        ("ddpg", False, "euclidean"),
        ("ddpg", True, "euclidean"),
    ],
    ids=["sac", "sac, critic first", "sac, adam", "ddpg", "ddpg, critic first"],
)
def test_a_captured_run_is_the_eager_one(agent, critic_first, norm_metric, monkeypatch) -> None:
    """Bit for bit, and on one stream: actions, transitions, masses and parameters of 200 steps, half with updates."""
    config = Training(
        task="InvertedPendulum-v5",
        agent=agent,
        samplers=("uniform", "prioritized", "adaptive", "predictive", "laber", SEPARATE),
        seeds=(0, 1),
        env_steps=200,
        updates_per_round=2,
        capacity=150,
        device="cuda",
        workers=0,
        sac=SAC(
            warm_up_steps=100,
            critic_first=critic_first,
            squashing_epsilon=1e-7 * critic_first,
            norm_metric=norm_metric,
        ),
        ddpg=DDPG(warm_up_steps=100, critic_first=critic_first),
    )
    states = []
    for eager_calls in (capture._EAGER_CALLS, 10**6):
        monkeypatch.setattr(capture, "_EAGER_CALLS", eager_calls)
        run = RunState(config)
        if eager_calls == 10**6:
            run.side_stream = run.acting_stream = run.agent._side_stream = SameStream()
        for _ in train(run):
            pass
        run.close()
        states.append({**run.replay.state_dict(), **run.agent.state_dict()})
    captured, eager = states
    for name, value in eager.items():
        assert torch.equal(captured[name], value), name


@pytest.mark.parametrize("agent", ["sac", "ddpg"])
def test_an_evaluation_beside_training_plays_the_policy_of_its_step(agent, tmp_path) -> None:
    """The same table as if training had waited, and the greedy policy of the GPU."""
    config = Training(
        task="InvertedPendulum-v5",
        agent=agent,
        samplers=("uniform", "adaptive"),
        seeds=(0,),
        env_steps=400,
        capacity=500,
        evaluate_every=100,
        evaluation_episodes=3,
        evaluation_workers=2,
        device="cuda",
        workers=0,
        sac=SAC(warm_up_steps=50),
        ddpg=DDPG(warm_up_steps=50),
    )
    tables = []
    for plays_beside in (True, False):
        runner = Runner(config, tmp_path / str(plays_beside))
        runner._trains_during_evaluation = plays_beside
        for _ in runner.steps():
            pass
        agent_now = runner.state.agent
        runner.close()
        tables.append((tmp_path / str(plays_beside) / "evaluations.csv").read_text())
    assert tables[0] == tables[1]
    observation = torch.randn(2, 5, 4, device="cuda")
    layers = [(weight[1], bias[1]) for weight, bias in agent_now.policy()]
    expected = agent_now.act_greedily(observation)[1].cpu().numpy()
    assert np.allclose(greedy_actions(layers, observation[1].cpu().numpy(), 1), expected, atol=1e-5)
