# Everything runs in .venv, made on first use. `make help` lists the targets. Benchmarks print their results;
# `make bench-… UPDATE=1` also writes them to benchmarks/results.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --constraint constraints.txt
export OMP_NUM_THREADS ?= 1

.PHONY: help demo setup test check docs bench-environments bench-replay bench-train bench-samplers bench-gpu bench-integrations bench-versions bench-cliffwalk trace learn learn-dqn results clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1	\2/' | expand -t 18

# torch first and by its exact version: a looser request takes a build with gigabytes of CUDA libraries.
.venv/torch: constraints.txt
	@echo "Installing into .venv, torch first: a few minutes, once."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --upgrade pip
	$(BIN)/pip install $$(grep '^torch==' constraints.txt)
	@touch $@

.venv/dev: .venv/torch pyproject.toml
	$(PIP) --editable '.[dev,docs]'
	@touch $@

.venv/bench: .venv/torch pyproject.toml
	$(PIP) --editable '.[bench]'
	@touch $@

.venv/games: .venv/torch pyproject.toml
	$(PIP) --editable '.[games]'
	@touch $@

.venv/demo: .venv/torch pyproject.toml
	$(PIP) --editable '.[report]'
	@touch $@

# Small networks and four updates per step, so that the pole stands within minutes; one process per seed, on two cores.
demo: .venv/demo ## Train SAC with four samplers on InvertedPendulum, print the table, write a report page; minutes
	$(BIN)/aes-rl compare runs/demo --tasks InvertedPendulum-v5 --agents sac --seeds 0 1 --preset default \
	  --samplers uniform prioritized adaptive predictive --members-per-population 4 --env-steps 4000 \
	  --set updates_per_round=4 evaluate_every=250 evaluation_episodes=5 measure_variance_every=250 capacity=10000 \
	  'sac.hidden=[64,64]' sac.batch_size=128 sac.learning_rate=0.002 sac.initial_entropy_coefficient=0.1 \
	  sac.warm_up_steps=500
	$(BIN)/aes-rl report runs/demo

setup: .venv/dev ## Make .venv and install the package with the development extras

test: check ## Install, lint, type-check, build the documentation and run the tests
	$(BIN)/python -m pytest -n 2 --quiet

check: setup ## Lint, formatting, types and documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/zensical build --strict

docs: setup ## Serve the documentation at http://127.0.0.1:8000
	$(BIN)/zensical serve

bench-replay: .venv/bench ## Time replay against Tianshou, cpprb and Stable-Baselines3; several minutes
	$(BIN)/python benchmarks/replay.py $(if $(UPDATE),--update)

bench-train: .venv/bench ## Time training against Stable-Baselines3; several minutes
	$(BIN)/python benchmarks/train.py $(if $(UPDATE),--update)
	$(if $(UPDATE),$(BIN)/python -m scripts.speed_figure)

bench-environments: .venv/bench ## Time environment steps against Gymnasium and bare MuJoCo; a minute
	$(BIN)/python benchmarks/environments.py $(if $(UPDATE),--update)
	$(if $(UPDATE),$(BIN)/python -m scripts.environment_tables)

bench-samplers: .venv/bench ## Time training with every sampler against uniform replay; minutes
	$(BIN)/python benchmarks/samplers.py $(if $(UPDATE),--update)

bench-integrations: .venv/bench ## Time Stable-Baselines3, TorchRL and Tianshou with AES against their own buffers; minutes
	$(BIN)/python benchmarks/integrations.py $(if $(UPDATE),--update)

bench-versions: .venv/bench ## Time this version against another checkout (BEFORE=path), interleaved; minutes
	$(BIN)/python benchmarks/versions.py $(BEFORE)

bench-cliffwalk: .venv/torch ## Count the updates that every sampler needs on Blind Cliffwalk; minutes
	$(PIP) --editable .
	$(BIN)/python benchmarks/cliffwalk.py

bench-gpu: .venv/torch ## Time whole populations on an NVIDIA GPU, stage by stage; minutes
	$(PIP) --editable .
	$(BIN)/aes-rl bench gpu $(if $(UPDATE),--output benchmarks/results/gpu.json)

trace: .venv/dev ## Profile one training step and count the files, lines and functions it enters
	$(BIN)/python scripts/trace.py

learn: .venv/dev ## Train real tasks to a score, here and in the host libraries, and print the tables; hours
	$(BIN)/python benchmarks/learn_integrations.py
	$(BIN)/python benchmarks/learn.py

learn-dqn: .venv/games ## Train DQN on CartPole, MinAtar, Pong and LunarLander; resumable; many hours
	$(BIN)/python benchmarks/learn_dqn.py
	$(BIN)/python benchmarks/learn_dqn.py --table

results: .venv/demo ## Rebuild every table, figure and number of docs/results and docs/variance.md from results
	$(BIN)/aes-rl report results/grid --output docs/results --title "The grid" --window 10
	$(BIN)/aes-rl report results/unfinished/walker2d-ddpg --output .venv/walker2d-ddpg --window 10
	cp .venv/walker2d-ddpg/figures/variance_ddpg.svg docs/results/figures/variance_walker2d_ddpg.svg
	$(BIN)/python reproduction/compare_with_published.py
	$(BIN)/python -m scripts.results_pages.render
	rm docs/results/index.html docs/results/measures.md docs/results/*.tex docs/results/figures/*.png docs/results/figures/*.pdf

clean: ## Remove .venv and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
