"""Limits on the input of a report. The files may be untrusted, so sizes are checked before memory or time is spent.

The limits are above the largest studies that this program trains. Input that exceeds a limit is left out, with a note.
"""

MOST_NAME = 200
"""Characters in the name of a task, sampler or network."""
MOST_MEMBERS = 1_000
"""Runs (samplers times seeds) in one config.json."""
MOST_STUDY_RUNS = 100_000
"""Runs in one study.json, all of which are listed to find the missing ones."""
MOST_RUNS = 5_000
"""Runs in one report."""
MOST_SEEDS = 1_000
"""Seeds per task, agent and sampler. Permutation tests hold all of them in memory."""
MOST_TASKS = 60
"""Tasks in one report. Each is a panel in up to three figures."""
MOST_METHODS = 200
"""Combinations of task, agent and sampler in one report. Each is tested against uniform replay."""
MOST_NETWORKS = 16
"""Networks with captured fractions in one report."""
MOST_RUN_DIRECTORIES = 10_000
"""Directories with a config.json in one report."""
MOST_DIRECTORIES = 100_000
"""Directories searched for runs."""
MOST_DEPTH = 10
"""Directory levels searched below the given directory."""
MOST_EVALUATIONS = 10_000
"""Evaluations per run. Each is a point of its curve."""
MOST_ROWS = 1_000_000
"""Rows per table."""
MOST_ROWS_TOGETHER = 5_000_000
"""Rows of all tables of one report."""
MOST_READINGS = 500_000
"""Variance readings in one report."""
MOST_TABLE = 200_000_000
"""Bytes per table after decompression."""
MOST_CONFIG = 1_000_000
"""Bytes of a config.json or manifest.json."""
LARGEST_STEP = 10**15
"""Environment steps per run."""
LARGEST_VALUE = 1e30
"""Magnitude of a score or a reading. Larger values could overflow when they are squared."""
