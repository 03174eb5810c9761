#!/usr/bin/env bash
# Trains the cells of a list on a machine with one GPU, some at a time, in the background, and collects what is complete.
#
#   scripts/gpu_session.sh start FOLDER LIST [AT_ONCE [WORKERS]]   returns at once; defaults: 3 cells, 10 workers each
#   scripts/gpu_session.sh state FOLDER                            one line per cell
#   scripts/gpu_session.sh collect FOLDER OUT                      OUT/CELL.tar: what results/ keeps of each complete cell
#
# LIST has lines for `aes-rl queue`; lines after # do not run. Each cell is a study of its own, whose workers may use all
# cores: cells whose environments wait leave them to the others. `start` copies the package, so that the working tree may
# change, and may be called again with another list: cells that are complete are skipped. Needs FOLDER/packages
# (results/QUEUE.md), and CUDA's multi-process service where there is a GPU.
set -euo pipefail
verb=$1 folder=$(realpath -m "$2")
project=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

start() {
  local list=$1 at_once=${2:-3} workers=${3:-10}
  mkdir -p "$folder/studies"
  rm -rf "$folder/code" && mkdir "$folder/code" && cp -r "$project/src" "$project/scripts" "$folder/code"
  grep -vE '^ *(#|$)' "$list" | sed "s/$/ workers=$workers evaluation_workers=2/" > "$folder/cells"
  if command -v nvidia-cuda-mps-control > /dev/null; then nvidia-cuda-mps-control -d || true; fi
  export PYTHONPATH="$folder/code/src:$folder/packages" OMP_NUM_THREADS=1
  export TRITON_CACHE_DIR="$folder/triton" TORCHINDUCTOR_CACHE_DIR="$folder/inductor"
  cd "$folder/studies"
  setsid nohup xargs -P "$at_once" -L 1 "$python" -m aes_rl compare < "$folder/cells" > "$folder/log" 2>&1 &
}

runs() { find "$folder/studies" -mindepth 4 -maxdepth 4 -type d -path '*/0' | sort; }

state() {
  local run
  for run in $(runs); do
    local step="not begun" done=""
    if [ -s "$run/metrics.csv" ]; then step="step $(tail -n 1 "$run/metrics.csv" | cut -d, -f 1)"; fi
    if [ -e "$run/manifest.json" ]; then done=", complete"; fi
    echo "${run#"$folder/studies/"} $step$done"
  done
  if [ -e "$folder/log" ]; then tail -n 3 "$folder/log" | cut -c 1-200; fi
}

collect() {
  local out=$1 run cell
  mkdir -p "$out" "$folder/collected"
  for run in $(runs); do
    cell=$(cut -d/ -f 1 <<< "${run#"$folder/studies/"}")
    if [ ! -e "$run/manifest.json" ] || [ -e "$folder/collected/$cell" ]; then continue; fi
    "$python" "$folder/code/scripts/publish.py" "$run" "$folder/published/$cell"
    tar -cf "$out/$cell.tar" -C "$folder/published" "$cell"
    touch "$folder/collected/$cell"
  done
}

case $verb in
  start | state | collect) "$verb" "${@:3}" ;;
  *) echo "unknown verb $verb; give start, state or collect" >&2; exit 2 ;;
esac
