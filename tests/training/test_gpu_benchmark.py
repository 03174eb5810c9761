"""Catches combinations that the GPU benchmark leaves out or writes under one key, and keys that no longer compare."""

import json
from pathlib import Path

import tyro

from aes_rl.training.gpu_benchmark import Bench, cases

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "gpu.json"


def test_every_combination_has_a_key_of_its_own() -> None:
    words = "gpu --tasks HalfCheetah-v5 Hopper-v5 Ant-v5 --batch-sizes 16 64 256 --members 15 60 120"
    args = tyro.cli(Bench, args=words.split())
    keys = {case.key for case in cases(args)}
    assert len(keys) == len(cases(args)) == 3 * 3 * 3 * 2
    assert {"60_tf32", "15", "120_tf32_hopper_batch_64", "60_batch_16"} <= keys


def test_keys_of_the_defaults_are_those_of_the_published_result() -> None:
    keys = {f"agent_steps_per_s_{case.key}" for case in cases(Bench("gpu"))}
    assert keys == {key for key in json.loads(RESULT.read_text()) if key.startswith("agent_steps_per_s_")}
