"""Run directories from untrusted sources: commands read them or reject them with one line, and change nothing else.

`python -m tests.fuzz RUNS` tries a thousand others.
"""

from random import Random

import pytest
from safetensors.torch import load_file, save_file

from tests.fuzz import valid_runs
from tests.fuzz.campaign import COMMANDS, Campaign
from tests.fuzz.mutant import update_checksum
from tests.fuzz.mutations import MUTATIONS
from tests.fuzz.tensors import FILE

MUTANTS, MUTANTS_PER_TEST = 150, 30


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    with Campaign(tmp_path_factory.mktemp("fuzz")) as campaign:
        yield campaign


@pytest.mark.parametrize("first", range(0, MUTANTS, MUTANTS_PER_TEST))
def test_a_mutated_directory_does_no_harm(first, campaign) -> None:
    """`python -m tests.fuzz RUNS --seed SEED --count 1` makes a mutant again and keeps it."""
    results = [campaign.run(seed) for seed in range(first, first + MUTANTS_PER_TEST)]
    failures = [str(result) for result in results if result.violations]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_valid_directory_is_accepted(command, campaign) -> None:
    """Without this test, rejecting every directory would pass the test above."""
    for kind in valid_runs.KINDS:
        result = campaign.check(campaign.copy(0, command, kind, False, Random(0)))
        assert (result.outcome, result.violations) == ("accepted", [])


def test_a_changed_checkpoint_with_a_new_checksum_is_accepted(campaign) -> None:
    """Otherwise the mutations of tensors would test the checksum only."""
    mutant = campaign.copy(0, "evaluate", "sac", True, Random(0))
    path = mutant.checkpoints()[-1] / FILE
    before = path.read_bytes()
    tensors = load_file(path)
    tensors["replay.rows"] = tensors["replay.rows"] + 1
    save_file(tensors, path)
    update_checksum(path, before)
    mutant.has_new_checksum = True
    result = campaign.check(mutant)
    assert path.read_bytes() != before
    assert (result.outcome, result.violations) == ("accepted", [])


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_changes_something(name, campaign) -> None:
    """A mutation that never applies would test nothing."""
    assert any(
        MUTATIONS[name][0](campaign.copy(0, command, "sac", True, Random(seed))) is not None
        for seed in range(5)
        for command in ("train", "report")
    )
