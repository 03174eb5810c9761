"""Waiting for another process: looking or asleep, nothing is missed, and a request comes through."""

import threading
import time
from multiprocessing import Pipe

import numpy as np
import pytest

from aes_rl.training import bell
from aes_rl.training.bell import Bell


class Pair:
    """Both ends of a bell, and of the pipe that each watches."""

    def __init__(self, is_looking=True):
        first_line, second_line = Pipe()
        first_pipe, second_pipe = Pipe()
        sleeps = np.zeros(2, np.int64)
        self.number = np.zeros(1, np.int64)
        self.ends = [
            Bell(first_line, first_pipe, sleeps[:1], sleeps[1:]),
            Bell(second_line, second_pipe, sleeps[1:], sleeps[:1]),
        ]
        self.pipes = [first_pipe, second_pipe]
        self.sleeps = sleeps
        for end in self.ends:
            end._sleeps_left = 0 if is_looking else 10**9


@pytest.mark.parametrize("is_looking", [True, False])
def test_turns_go_to_and_fro(is_looking) -> None:
    pair, turns = Pair(is_looking), 2000

    def answer():
        for turn in range(turns):
            assert pair.ends[1].wait(lambda due=2 * turn + 1: pair.number[0] >= due)
            pair.number[0] += 1
            pair.ends[1].ring()

    other = threading.Thread(target=answer)
    other.start()
    for turn in range(turns):
        pair.number[0] += 1
        pair.ends[0].ring()
        assert pair.ends[0].wait(lambda due=2 * turn + 2: pair.number[0] >= due)
    other.join()
    assert pair.number[0] == 2 * turns
    assert not pair.sleeps.any()


def test_a_sleeper_is_woken_by_the_ring_alone(monkeypatch) -> None:
    monkeypatch.setattr(bell, "_LONGEST_SLEEP", 60)
    pair, woken = Pair(is_looking=False), []
    sleeper = threading.Thread(target=lambda: woken.append(pair.ends[0].wait(lambda: pair.number[0])))
    sleeper.start()
    while not pair.sleeps[0]:
        time.sleep(0.001)
    time.sleep(0.05)  # let it lie down
    pair.number[0] = 1
    pair.ends[1].ring()
    sleeper.join(timeout=30)
    assert woken == [True]


def test_a_missed_ring_costs_a_short_sleep() -> None:
    pair, woken = Pair(is_looking=False), []
    sleeper = threading.Thread(target=lambda: woken.append(pair.ends[0].wait(lambda: pair.number[0])))
    sleeper.start()
    time.sleep(0.05)
    pair.number[0] = 1  # and nobody rings
    sleeper.join(timeout=30)
    assert woken == [True]


@pytest.mark.parametrize("is_looking", [True, False])
def test_a_request_ends_the_wait(is_looking) -> None:
    pair = Pair(is_looking)
    pair.pipes[1].send("save")
    assert not pair.ends[0].wait(lambda: False)
    assert pair.pipes[0].recv() == "save"


def test_an_end_that_is_gone_ends_the_wait() -> None:
    """With a ring that it never heard: its line is then reset, not closed."""
    pair = Pair(is_looking=False)
    pair.sleeps[1] = 1
    pair.ends[0].ring()
    pair.ends[1].close()
    pair.pipes[1].close()
    assert not pair.ends[0].wait(lambda: False)
    with pytest.raises(EOFError):
        pair.pipes[0].recv()


def test_whoever_is_awake_is_not_rung_for() -> None:
    pair = Pair()
    pair.ends[1].ring()
    assert not pair.ends[0]._line.poll(0)


@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux says who had to leave the core")
def test_a_core_that_others_want_is_left_to_them(monkeypatch) -> None:
    displaced = iter(range(10**6))
    monkeypatch.setattr(bell, "_times_displaced", lambda: next(displaced))
    pair = Pair()
    pair.pipes[1].send("later")
    assert not pair.ends[0].wait(lambda: False)
    assert pair.ends[0]._sleeps_left == 0, "the request came first"
    pair.pipes[0].recv()
    looks = iter(range(10**6))
    assert pair.ends[0].wait(lambda: next(looks) > 300)
    assert pair.ends[0]._sleeps_left == bell._SLEEPS_A_LOOK
    assert pair.ends[0].wait(lambda: True)
    assert pair.ends[0]._sleeps_left == bell._SLEEPS_A_LOOK - 1
