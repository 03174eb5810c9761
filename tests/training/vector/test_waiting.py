"""Catches missed turns and ignored requests while a process waits, spinning or asleep."""

import os
import sys
import threading
import time
from multiprocessing import Pipe

import numpy as np
import pytest

from aes_rl.training.vector import waiting
from aes_rl.training.vector.waiting import TurnEvent

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts preemptions")
MODES = pytest.mark.parametrize("is_spinning", [pytest.param(True, marks=LINUX), False])
LONG = 30


class Pair:
    """Both ends of an event, and of the pipe that each watches."""

    def __init__(self, is_spinning=False):
        self.connections, self.pipes = Pipe(), Pipe()
        self.sleeps, self.number = np.zeros(2, np.int64), np.zeros(1, np.int64)
        own = [self.sleeps[:1], self.sleeps[1:]]
        self.ends = [TurnEvent(self.connections[i], self.pipes[i], own[i], own[1 - i]) for i in range(2)]
        for end in self.ends:
            end._sleeps_left = 0 if is_spinning else 10**9

    def reached(self, due):
        """A condition that fails the test instead of waiting forever."""
        deadline = time.monotonic() + LONG

        def is_ready():
            assert time.monotonic() < deadline, "the other end did not answer"
            return self.number[0] >= due

        return is_ready


def start(target):
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("has_ordered_writes", [True, False])
@MODES
def test_turns_alternate(is_spinning, has_ordered_writes, monkeypatch) -> None:
    """With sleeps so long that a missed notification would fail the test."""
    monkeypatch.setattr(waiting, "_MAX_SLEEP_SECONDS", LONG)
    monkeypatch.setattr(waiting, "_HAS_ORDERED_WRITES", has_ordered_writes)
    pair, turns = Pair(is_spinning), 500

    def answer():
        for turn in range(turns):
            pair.ends[1].wait(pair.reached(2 * turn + 1))
            pair.number[0] += 1
            pair.ends[1].notify()

    other = start(answer)
    for turn in range(turns):
        pair.number[0] += 1
        pair.ends[0].notify()
        assert pair.ends[0].wait(pair.reached(2 * turn + 2))
    other.join(timeout=LONG)
    assert pair.number[0] == 2 * turns
    assert not pair.sleeps.any()


def test_the_other_end_notifies_if_it_comes_just_before_the_sleep(monkeypatch) -> None:
    """The other end comes right after the last poll: it must already see that this one sleeps."""
    monkeypatch.setattr(waiting, "_MAX_SLEEP_SECONDS", LONG)
    pair = Pair()

    slept = []

    def is_ready():
        slept.append(int(pair.sleeps[0]))
        if pair.number[0] == 0:
            pair.number[0] = 1
            pair.ends[1].notify()
            return False
        return True

    assert pair.ends[0].wait(is_ready)
    assert slept == [1, 1]


def test_a_missed_notification_costs_a_short_sleep() -> None:
    pair, woken = Pair(), []
    sleeper = start(lambda: woken.append(pair.ends[0].wait(pair.reached(1))))
    time.sleep(0.05)
    pair.number[0] = 1  # without a notification
    sleeper.join(timeout=LONG)
    assert woken == [True]


def test_a_turn_is_not_taken_before_its_notification_if_writes_may_be_reordered(monkeypatch) -> None:
    """The counter may become visible before earlier writes; the notification may not."""
    monkeypatch.setattr(waiting, "_HAS_ORDERED_WRITES", False)
    pair, taken = Pair(), []
    pair.number[0] = 1
    sleeper = start(lambda: taken.append(pair.ends[0].wait(pair.reached(1))))
    time.sleep(0.1)
    assert not taken
    pair.ends[1].notify()
    sleeper.join(timeout=LONG)
    assert taken == [True]


@pytest.mark.parametrize("has_ordered_writes", [True, False])
@MODES
def test_a_request_ends_the_wait(is_spinning, has_ordered_writes, monkeypatch) -> None:
    monkeypatch.setattr(waiting, "_HAS_ORDERED_WRITES", has_ordered_writes)
    pair = Pair(is_spinning)
    pair.pipes[1].send("save")
    assert not pair.ends[0].wait(pair.reached(1))
    assert pair.pipes[0].recv() == "save"


@pytest.mark.parametrize("has_ordered_writes", [True, False])
def test_a_closed_other_end_ends_the_wait(has_ordered_writes, monkeypatch) -> None:
    """With a notification that it never read: its connection is then reset, not closed."""
    monkeypatch.setattr(waiting, "_HAS_ORDERED_WRITES", has_ordered_writes)
    pair = Pair()
    pair.sleeps[1] = 1
    pair.ends[0].notify()
    pair.ends[1].close()
    pair.pipes[1].close()
    pair.ends[0].notify()  # the other end is closed
    assert not pair.ends[0].wait(pair.reached(1))
    with pytest.raises(EOFError):
        pair.pipes[0].recv()


def test_an_end_that_is_awake_is_not_notified() -> None:
    pair = Pair()
    pair.ends[1].notify()
    assert not pair.connections[0].poll(0)


def test_notifications_do_not_pile_up() -> None:
    pair = Pair()
    for turn in range(3):
        pair.sleeps[0] = 1
        pair.ends[1].notify()
        sleeper = start(lambda due=turn + 1: pair.ends[0].wait(pair.reached(due)))
        time.sleep(0.05)
        pair.number[0] += 1
        sleeper.join(timeout=LONG)
        assert not pair.connections[0].poll(0)


def test_an_end_does_not_spin_where_nobody_counts_preemptions(monkeypatch) -> None:
    """As on a Mac with an Intel processor: there is neither a count nor a way to yield the core."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_yield", raising=False)
    monkeypatch.setattr(waiting, "_HAS_ORDERED_WRITES", True)
    monkeypatch.setattr(waiting, "_preemption_count", lambda: 1 / 0)
    connections, pipes = Pipe(), Pipe()
    sleeps = np.zeros(2, np.int64)
    end, polls = TurnEvent(connections[0], pipes[0], sleeps[:1], sleeps[1:]), iter(range(10))
    for _ in range(2):
        assert end.wait(lambda: next(polls) % 4 == 3)


@LINUX
def test_a_preempted_end_sleeps_through_its_next_waits(monkeypatch) -> None:
    """Another process takes the core that was yielded: the next waits do not spin."""
    yields = []
    monkeypatch.setattr(waiting, "_MAX_SPIN_SECONDS", LONG)
    monkeypatch.setattr(waiting, "_MAX_SLEEP_SECONDS", 0)
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(1))
    monkeypatch.setattr(waiting, "_preemption_count", lambda: len(yields))
    pair, polls = Pair(is_spinning=True), iter(range(10**6))
    assert pair.ends[0].wait(lambda: next(polls) >= waiting._POLLS_PER_CHECK + 3)
    assert len(yields) == 1
    assert pair.ends[0]._sleeps_left == waiting._SLEEPS_AFTER_PREEMPTION
    assert pair.ends[0].wait(lambda: True)
    assert (len(yields), pair.ends[0]._sleeps_left) == (1, waiting._SLEEPS_AFTER_PREEMPTION - 1)
