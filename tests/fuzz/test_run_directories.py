"""Run directories of strangers: commands refuse them with one line or read them, and touch nothing else.

`python -m tests.fuzz RUNS` tries a thousand others.
"""

from random import Random

import pytest
from safetensors.torch import load_file, save_file

from tests.fuzz import honest
from tests.fuzz.campaign import COMMANDS, Campaign
from tests.fuzz.mutant import resign
from tests.fuzz.mutations import MUTATIONS
from tests.fuzz.tensors import FILE

MUTANTS, MUTANTS_PER_TEST = 150, 30


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    with Campaign(tmp_path_factory.mktemp("fuzz")) as campaign:
        yield campaign


@pytest.mark.parametrize("first", range(0, MUTANTS, MUTANTS_PER_TEST))
def test_a_directory_from_a_stranger_does_no_harm(first, campaign) -> None:
    """`python -m tests.fuzz RUNS --seed SEED --count 1` makes a mutant again and leaves it to be looked at."""
    results = [campaign.run(seed) for seed in range(first, first + MUTANTS_PER_TEST)]
    broken = [str(result) for result in results if result.violations]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_honest_directory_is_accepted(command, campaign) -> None:
    """Or refusing everything would pass the test above."""
    for kind in honest.KINDS:
        result = campaign.judged(campaign.copy(0, command, kind, False, Random(0)))
        assert (result.outcome, result.violations) == ("accepted", [])


def test_a_checkpoint_made_by_hand_is_read_if_its_checksum_fits(campaign) -> None:
    """Or the checksum alone would be tested by every mutation of tensors."""
    mutant = campaign.copy(0, "evaluate", "sac", True, Random(0))
    path = mutant.checkpoints()[-1] / FILE
    before = path.read_bytes()
    tensors = load_file(path)
    tensors["replay.rows"] = tensors["replay.rows"] + 1
    save_file(tensors, path)
    resign(path, before)
    mutant.is_resigned = True
    result = campaign.judged(mutant)
    assert path.read_bytes() != before
    assert (result.outcome, result.violations) == ("accepted", [])


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_changes_something(name, campaign) -> None:
    """Or a kind of harm would be believed to be tried."""
    assert any(
        MUTATIONS[name][0](campaign.copy(0, command, "sac", True, Random(seed))) is not None
        for seed in range(5)
        for command in ("train", "report")
    )
