#!/bin/sh
# run.sh BUILD - the benchmarks of a build: kernels on one thread and on all cores; then, with BENCH_MODEL=FILE, a model,
# beside llama.cpp where PEERS=DIR has it built.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
"$build/bench/kernels" --threads 1 --quick
"$build/bench/kernels" --quick
[ -z "${BENCH_MODEL:-}" ] || bench/compare.py "$build/oxinferd" "$BENCH_MODEL" "${PEERS:-}"
