"""The grid of a study, and the input that it rejects."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest

from aes_rl.agents import DDPG
from aes_rl.errors import UserError
from aes_rl.options import assigned
from aes_rl.samplers import Adaptive
from aes_rl.study.grid import Study, prepare, run_groups


def test_the_default_is_the_papers_experiment() -> None:
    groups = run_groups(Study())
    assert len(groups) == 16
    assert sum(group.runs for group in groups) == 240
    configs = {group.name: group.config for group in groups}
    assert configs["HalfCheetah-v5/sac/0"].env_steps == 3_000_000
    assert configs["Humanoid-v5/ddpg/0"].env_steps == 150_000
    assert configs["InvertedDoublePendulum-v5/sac/0"].sampler["adaptive"].nu == 10_000


def test_every_run_is_in_one_group() -> None:
    study = Study(tasks=("Hopper-v5", "Ant-v5"), seeds=(1, 2, 3, 4, 5), members_per_population=7)
    runs = [
        (group.config.task, group.config.agent, *member)
        for group in run_groups(study)
        for member in group.config.members
    ]
    assert len(runs) == len(set(runs)) == 2 * 2 * 3 * 5
    assert all(group.runs <= 7 for group in run_groups(study))


def test_an_option_takes_words_as_well_as_numbers() -> None:
    assert assigned(Adaptive(), "nu=auto").nu == "auto"
    assert assigned(Adaptive(nu="auto"), "overwrite=uniform").overwrite == "uniform"
    assert assigned(Adaptive(nu="auto"), "nu=1000").nu == 1000
    assert assigned(DDPG(), "critic_action_layer=0").critic_action_layer == 0
    with pytest.raises(ValueError, match="takes 0 or 1, not 'true'"):
        assigned(DDPG(), "critic_action_layer=true")
    with pytest.raises(ValueError, match="takes auto or float, not 'automatic'"):
        assigned(Adaptive(), "nu=automatic")


def test_options_of_a_users_sampler_are_read_by_their_types() -> None:
    @dataclass(frozen=True)
    class Own:
        label: str | None = None
        pairs: tuple[tuple[int, int], ...] = ()
        names: Sequence[str] = ()
        unknown: "Missing" = 1

    with pytest.raises(ValueError, match="the types of Own cannot be read"):
        assigned(Own(), "label=5")
    Own.__annotations__["unknown"] = Any
    assert assigned(Own(), "label=5").label == "5"
    assert assigned(Own(label="x"), "label=null").label is None
    assert assigned(Own(), "pairs=[[1,2],[3,4]]").pairs == ((1, 2), (3, 4))
    assert assigned(Own(), 'names=["a"]').names == ("a",)
    assert assigned(Own(), "unknown=2.5").unknown == 2.5


def test_a_study_names_the_task_where_two_variants_are_the_same() -> None:
    with pytest.raises(
        ValueError, match=r"HalfCheetah-v5, ddpg: samplers adaptive and adaptive:floor=0.1 have the same"
    ):
        run_groups(Study(tasks=("HalfCheetah-v5",), samplers=("adaptive", "adaptive:floor=0.1")))


def test_options_are_set_by_name(tiny) -> None:
    config = run_groups(replace(tiny, set=("sac.learning_rate=1", "sampler.adaptive.floor=0.4", "device=cuda")))[
        0
    ].config
    assert config.sac.learning_rate == 1.0
    assert config.sampler["adaptive"].floor == 0.4
    assert config.device == "cuda"


def test_a_group_steps_its_environments_itself_unless_on_a_gpu(tiny) -> None:
    for further, workers in (((), 0), (("device=cuda",), None), (("workers=3",), 3), (("device=cuda", "workers=0"), 0)):
        assert run_groups(replace(tiny, set=tiny.set + further))[0].config.workers == workers


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"set": ("sac.batchsize=3",)}, "'sac.batchsize=3': there is no option 'batchsize'.*did you mean 'batch_size'"),
        ({"set": ("capacity",)}, "write name=value"),
        ({"set": ("capacity=many",)}, "takes int, not 'many'"),
        ({"set": ("task=Hopper-v5",)}, "task has an option of its own"),
        ({"set": ("sac.learning_rate=0",)}, "learning_rate is 0"),
        ({"set": ("sac.hidden=[]",)}, "give a tuple with the units"),
        ({"set": ("sac.hidden=[3.5]",)}, r"'sac.hidden=\[3.5\]': it takes tuple\[int, ...\], not"),
        ({"set": ("sac.hidden=[0]",)}, "hidden is 0; it must be a whole number"),
        ({"set": ("sac=3",)}, "sac is a group of options; set one of value_function"),
        ({"set": ("sac.target_entropy=low",)}, "takes float or None, not 'low'"),
        ({"set": ("sampler.adaptive.retention_end=x",)}, "takes float or None, not 'x'"),
        ({"set": ("device=gpu",)}, "it must be cpu, cuda"),
        ({"set": ("sac.warm_up_steps=240",)}, "nothing would be learned"),
        ({"set": ('sampler.adaptive.networks=["actr"]',)}, "sac has actor, critic"),
        ({"set": ("capacity.x=1",)}, "capacity has no options of its own"),
        ({"seeds": (1, 1)}, "repeat"),
        ({"tasks": ()}, "no tasks"),
        ({"tasks": ("Hoper-v5",)}, "unknown task 'Hoper-v5'"),
        ({"samplers": ("adaptiv",), "members_per_population": 5}, "unknown sampler 'adaptiv'"),
        ({"members_per_population": 1}, "at least the number of samplers"),
    ],
)
def test_mistakes_are_reported_before_anything_is_written(tiny, tmp_path, change, message) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(replace(tiny, **change), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_directory_holds_one_study(tiny, tmp_path) -> None:
    prepare(tiny, tmp_path / "study")
    prepare(tiny, tmp_path / "study")
    with pytest.raises(ValueError, match=r"holds another study \(seeds \[2, 20\] there and \[3, 4\] here\)"):
        prepare(replace(tiny, seeds=(3, 4)), tmp_path / "study")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is not empty and holds no study"):
        prepare(tiny, tmp_path / "other")


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "", "{" + " " * 5_000_000 + "}"])
def test_a_damaged_study_is_one_line(tiny, tmp_path, content) -> None:
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(UserError, match=r"study\.json (is|holds)"):
        prepare(tiny, tmp_path)


def test_nothing_is_written_through_a_link_in_a_strangers_study(tiny, tmp_path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / tiny.tasks[0]).symlink_to(tmp_path / "victim")
    (tmp_path / "study" / "study.json").write_text(json.dumps(asdict(tiny)))
    with pytest.raises(UserError, match="symbolic link"):
        prepare(tiny, tmp_path / "study")
    assert not any((tmp_path / "victim").iterdir())


def test_a_linked_study_is_not_read(tiny, tmp_path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / "study.json").symlink_to("elsewhere")
    with pytest.raises(UserError, match="symbolic link"):
        prepare(tiny, tmp_path)
