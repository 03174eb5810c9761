"""A real two-node Ray cluster on this machine that loses a node."""

import time
from dataclasses import replace

import pytest

from aes_rl.study.command import Execution, run_study
from aes_rl.study.grid import prepare
from aes_rl.study.schedule import execute
from aes_rl.study.worker import progress_of

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def test_a_study_that_loses_a_node_ends_with_the_same_results(longer, tmp_path) -> None:
    from ray.cluster_utils import Cluster

    from aes_rl.study.ray import RayExecutor

    longer = replace(longer, env_steps=1200)  # so that both nodes work at the same time
    run_study(longer, tmp_path / "local", Execution(processes=2, retries=0))
    # On a loaded machine nodes answer slowly; Ray would take them for dead. It notices a killed node all the same.
    patience = {"health_check_timeout_ms": 300_000}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": patience}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    doomed = cluster.add_node(num_cpus=1)
    executor = RayExecutor(cluster.address)
    groups = prepare(longer, tmp_path / "ray")
    state = {"lost": False}
    retried = []

    deadline = time.monotonic() + 1200  # a loaded machine starts its nodes slowly

    def lose_a_node(running) -> None:
        assert time.monotonic() < deadline, f"{running} did not finish"
        begun = [name for name in running if progress_of(tmp_path / "ray" / name).env_step > 30]
        if len(begun) >= 2 and not state["lost"]:
            cluster.remove_node(doomed, allow_graceful=False)
            state["lost"] = True

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
    assert state["lost"]
    assert retried
    assert sorted(summary.finished) == sorted(group.name for group in groups)
    for group in groups:
        files = [tmp_path / kind / group.name / "evaluations.csv" for kind in ("local", "ray")]
        assert files[0].read_bytes() == files[1].read_bytes()
