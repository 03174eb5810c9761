"""How much a report takes in. The files may come from a stranger, so sizes are bounded before memory or time is spent.

The limits leave room above the largest studies that this program trains; what exceeds one is left out and named.
"""

MOST_NAME = 200
"""Characters in the name of a task, a sampler or a network."""
MOST_MEMBERS = 1_000
"""Runs that one directory's config.json may name, samplers times seeds."""
MOST_STUDY_RUNS = 100_000
"""Runs that study.json may name; they are listed to find those that are missing."""
MOST_RUNS = 5_000
"""Runs in one report."""
MOST_SEEDS = 1_000
"""Seeds of one task, agent and sampler. Permutation tests hold all of them at once."""
MOST_TASKS = 60
"""Tasks in one report; each is a panel in up to three figures."""
MOST_METHODS = 200
"""Combinations of task, agent and sampler in one report; each is tested against uniform replay."""
MOST_NETWORKS = 16
"""Networks whose captured fractions one report shows."""
MOST_RUN_DIRECTORIES = 10_000
"""Directories with a config.json in one report."""
MOST_DIRECTORIES = 100_000
"""Directories searched for runs."""
MOST_DEPTH = 10
"""Levels below the given directory that are searched."""
MOST_EVALUATIONS = 10_000
"""Evaluations of one run; each is a point of its curve."""
MOST_ROWS = 1_000_000
"""Rows of one table."""
MOST_ROWS_TOGETHER = 5_000_000
"""Rows of all tables that one report reads."""
MOST_READINGS = 500_000
"""Readings of the variance that one report keeps."""
MOST_TABLE = 200_000_000
"""Bytes of one table, unpacked."""
MOST_CONFIG = 1_000_000
"""Bytes of a run's config.json or manifest.json."""
LARGEST_STEP = 10**15
"""Environment steps of a run."""
LARGEST_VALUE = 1e30
"""Magnitude of a score or a reading; squares of larger ones leave the range of floating-point numbers."""
