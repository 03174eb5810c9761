"""A search for AES's parameters is resumed, and rejected where it would mix with another search."""

import json
from dataclasses import replace

import pytest

from aes_rl.cli import main
from aes_rl.study.command import Execution
from aes_rl.study.tune import Search, Tune, run_search
from aes_rl.training import run_files


def search(directory, tiny, **options):
    given = {"task": "InvertedPendulum-v5", "preset": "default", "env_steps": 120, "set": tiny.set}
    given |= {"trials": 2, "compare": False}
    return run_search(Tune(directory, Search(**given | options), execution=Execution(processes=2, retries=0)))


def test_a_search_resumes_where_it_stopped(tiny, tmp_path) -> None:
    search(tmp_path, tiny)
    first = {path: path.read_bytes() for path in tmp_path.rglob("evaluations.csv")}
    best = search(tmp_path, tiny, trials=3)
    main(["tune", str(tmp_path)])  # as it was last asked for: three trials, no comparison
    assert not (tmp_path / "comparison").exists()
    trials = sorted((tmp_path / "trials").iterdir())
    configs = [run_files.read_config(path) for path in trials]
    assert len(trials) == 3
    assert all(path.read_bytes() == before for path, before in first.items())
    assert all(config.members == [("adaptive", 2)] for config in configs)
    assert len({config.sampler["adaptive"] for config in configs}) == 3
    assert any(all(getattr(c.sampler["adaptive"], name) == value for name, value in best.items()) for c in configs)
    assert json.loads((tmp_path / "best.json").read_text()).keys() == {"score", *best}
    with pytest.raises(ValueError, match="another configuration"):
        search(tmp_path, tiny, seed=20)
    with pytest.raises(ValueError, match=r"sampler\.adaptive\.overwrite"):
        search(tmp_path, replace(tiny, set=(*tiny.set, "sampler.adaptive.overwrite=fifo")), trials=3)
