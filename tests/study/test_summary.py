"""The table at the end of a study, and a study whose options are not given again."""

import json
import re

import pytest
from rich.console import Console

from aes_rl.cli import main
from aes_rl.study.grid import prepare
from aes_rl.study.summary import Line, lines, show
from tests.study.test_local import argv_of


def finished(study, directory):
    """A study with tables written by hand."""
    groups = prepare(study, directory)
    for group in groups:
        own = directory / group.name
        (own / "manifest.json").write_text("{}")
        evaluations, metrics = ["env_step,sampler,seed,mean_return"], ["env_step,sampler,seed,metric,value"]
        for step, score, captured in ((120, 0, 0.5), (180, 5, 0.1), (240, 10, 0.3)):
            for sampler, seed in group.config.members:
                evaluations += [f"{step},{sampler},{seed},{score + seed}"]
                metrics += [f"{step},{sampler},{seed},captured_fraction,{captured}"]
                metrics += [f"{step},{sampler},{seed},largest_weight,9"]
        (own / "evaluations.csv").write_text("\n".join(evaluations) + "\n")
        (own / "metrics.csv").write_text("\n".join(metrics) + "\n")
    return groups


def test_numbers_are_of_the_last_evaluation_and_of_the_second_half(tiny, tmp_path) -> None:
    groups = finished(tiny, tmp_path)
    expected = Line("InvertedPendulum-v5", "sac", "uniform", [12.0, 30.0], [0.2, 0.2])
    assert lines(groups, tmp_path) == [expected, expected._replace(sampler="adaptive")]
    (tmp_path / groups[1].name / "manifest.json").unlink()
    assert lines(groups, tmp_path)[0].returns == [12.0]


def test_every_column_has_a_meaning() -> None:
    told = Console(width=200, record=True)
    show([Line("A-v0", "sac", "uniform", [1.0, 3.0], [0.25]), Line("A-v0", "sac", "naive", [2.0], [])], told)
    text = told.export_text()
    assert re.search(r"uniform.*2\.0 \(1\.0 to 3\.0\).*0\.25", text)
    assert re.search(r"naive.*2\.0.*–", text)
    assert re.search("^mean return: .*^captured fraction: ", text, re.DOTALL | re.MULTILINE)
    show([Line("A-v0", "sac", "uniform", [1.0], [])], told)
    assert "captured" not in told.export_text()


def test_a_directory_alone_is_its_study(tiny, tmp_path, capsys) -> None:
    finished(tiny, tmp_path)
    main(["compare", str(tmp_path)])
    told = capsys.readouterr().out
    assert "4 of 4 runs are finished" in told
    assert "captured fraction: share of the removable gradient variance" in told
    main(argv_of(tiny, tmp_path))
    for words, message in (
        (["--seeds", "2"], "another study (seeds [2, 20] there and [2] here);"),
        (
            ["--env-steps", "9", "--agents", "ddpg"],
            "(agents ['sac'] there and ['ddpg'] here, env_steps 240 there and 9",
        ),
    ):
        with pytest.raises(SystemExit):
            main(["compare", str(tmp_path), *words])
        assert message in capsys.readouterr().err


def test_a_strangers_study_imports_nothing(tiny, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("AES_RL_MODULES", "")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    prepare(tiny, tmp_path / "study")
    path = tmp_path / "study" / "study.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tasks": ["evil:InvertedPendulum-v5"]}))
    with pytest.raises(SystemExit):
        main(["compare", str(tmp_path / "study")])
    assert "runs the code of the module evil; if you trust it, add --module evil" in capsys.readouterr().err
    path.write_text(json.dumps({"tasks": 5}))
    with pytest.raises(SystemExit):
        main(["compare", str(tmp_path / "study")])
    assert "study.json.tasks is 5; it must be tuple" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


def test_a_search_remembers_its_options(tiny, tmp_path, capsys, monkeypatch) -> None:
    """Without the training: a search that cannot begin says which options it has."""
    monkeypatch.setenv("AES_RL_MODULES", "")
    (tmp_path / "tune.json").write_text(json.dumps({"task": "evil:Hopper-v5", "env_steps": 9, "set": list(tiny.set)}))
    for words, message in (
        ([], "runs the code of the module evil"),
        (["--task", "Hopper-v5"], "nothing would be learned"),
    ):
        with pytest.raises(SystemExit):
            main(["tune", str(tmp_path), *words])
        assert message in capsys.readouterr().err
