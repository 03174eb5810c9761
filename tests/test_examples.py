"""The single-file examples run, stay short, and mark the lines that AES adds."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short_and_marked(path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) < 250
    assert sum("# AES" in line for line in lines) >= 8


@pytest.mark.filterwarnings("ignore")  # TorchRL's own
@pytest.mark.parametrize("sampler", ["uniform", "prioritized", "adaptive", "predictive"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_trains(path, sampler, capsys) -> None:
    example = loaded(path)
    example.main(
        example.Arguments(
            task="CartPole-v1" if path.stem.startswith("dqn") else "InvertedPendulum-v5",
            sampler=sampler,
            env_steps=140,
            warm_up_steps=100,
            capacity=120,
            batch_size=16,
        )
    )
    assert "140 steps, mean return" in capsys.readouterr().out
