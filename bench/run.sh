#!/bin/sh
# run.sh BUILD - the benchmarks of a build. BENCH_MODELS="FILE...": models, beside llama.cpp where PEERS=DIR has it built (all
# settings: bench/compare.py); without it, or with KERNELS=1, the kernels on one thread and on all cores.
# QUALITY=FILE: what the default arithmetic costs on a text (bench/quality.py).
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
models=${BENCH_MODELS:-${BENCH_MODEL:-}}
if [ -n "${KERNELS:-}" ] || [ -z "$models${QUALITY:-}" ]; then
    "$build/bench/kernels" --threads 1 --quick
    "$build/bench/kernels" --quick
fi
if [ -n "$models" ]; then
    # shellcheck disable=SC2086 # a list of files
    bench/compare.py "$build/oxinferd" $models
fi
[ -z "${QUALITY:-}" ] || bench/quality.py "$build" "$QUALITY"
