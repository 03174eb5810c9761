"""A real two-node Ray cluster on this machine that loses a node."""

import time
from dataclasses import replace

import pytest

from aes_rl.study.command import Execution, run_study
from aes_rl.study.grid import prepare
from aes_rl.study.schedule import execute

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def test_a_study_that_loses_a_node_ends_with_the_same_results(longer, tmp_path) -> None:
    from ray.cluster_utils import Cluster

    from aes_rl.study.ray import RayExecutor

    longer = replace(longer, env_steps=4000)  # most are left when the first checkpoint is seen
    run_study(longer, tmp_path / "local", Execution(processes=2, retries=0))
    # On a loaded machine nodes answer slowly; Ray would take them for dead. It notices a killed node all the same. Its
    # workers give way to every other process unless told otherwise, and would hardly run at all.
    patience = {"health_check_timeout_ms": 300_000, "worker_niceness": 0}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": patience}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    doomed = cluster.add_node(num_cpus=1)  # the only one that trains, so that a group is lost with it
    executor = RayExecutor(cluster.address)
    groups = prepare(longer, tmp_path / "ray")
    lost: list[str] = []
    retried: list[str] = []
    deadline = time.monotonic() + 1200  # a loaded machine starts its nodes slowly

    def lose_a_node(running: list[str]) -> None:
        assert time.monotonic() < deadline, f"{running} did not finish"
        begun = [name for name in running if (tmp_path / "ray" / name / "checkpoint").exists()]
        if begun and not lost:
            cluster.remove_node(doomed, allow_graceful=False)
            cluster.add_node(num_cpus=1)
            lost.extend(begun)

    try:
        summary = execute(
            groups,
            tmp_path / "ray",
            executor,
            retries=2,
            on_event=lambda event: retried.append(event.name) if event.kind == "retried" else None,
            on_tick=lose_a_node,
        )
    finally:
        executor.close()
        cluster.shutdown()
    assert lost
    assert set(lost) <= set(retried)
    assert sorted(summary.finished) == sorted(group.name for group in groups)
    for group in groups:
        files = [tmp_path / kind / group.name / "evaluations.csv" for kind in ("local", "ray")]
        assert files[0].read_bytes() == files[1].read_bytes()
