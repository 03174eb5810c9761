#!/usr/bin/env bash
# Install a wheel in an empty environment and, outside the checkout, run the README's change to Stable-Baselines3.
#   bash scripts/try_wheel.sh dist/aes_rl-*.whl
set -euo pipefail
wheel=$(realpath "$1")
project=$(realpath "$(dirname "$0")/..")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --constraint "$project/constraints.txt" torch
"$place/venv/bin/pip" install --quiet --constraint "$project/constraints.txt" "$wheel[sb3]"
# The lines of the diff that are not removed are a whole program.
sed -n '/^```diff$/,/^```$/p' "$project/README.md" | sed -e '1d;$d' -e '/^-/d' -e 's/^.//' > "$place/program.py"
cd "$place"
venv/bin/python program.py | tee printed.txt
grep --quiet 'selection/' printed.txt
venv/bin/aes-rl train run --task InvertedPendulum-v5 --samplers predictive --seeds 0 --env-steps 1500 --sac.warm-up-steps 1000
