#!/bin/sh
# run.sh BUILD - the benchmarks of a build. BENCH_MODELS="FILE...": models, beside llama.cpp where PEERS=DIR has it built (all
# settings: bench/compare.py). SERVE_MODELS="FILE...": how they are served, beside llama-server (bench/serve_compare.py).
# QUALITY=FILE: what the default arithmetic costs on a text (bench/quality.py). Without these, or with KERNELS=1: the kernels
# on one thread and on all cores.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
models=${BENCH_MODELS:-${BENCH_MODEL:-}}
if [ -n "${KERNELS:-}" ] || [ -z "$models${QUALITY:-}${SERVE_MODELS:-}" ]; then
    "$build/bench/kernels" --threads 1 --quick
    "$build/bench/kernels" --quick
fi
if [ -n "$models" ]; then
    # shellcheck disable=SC2086 # a list of files
    bench/compare.py "$build/oxinferd" $models
fi
if [ -n "${SERVE_MODELS:-}" ]; then
    # shellcheck disable=SC2086 # a list of files
    bench/serve_compare.py "$build" $SERVE_MODELS
fi
[ -z "${QUALITY:-}" ] || bench/quality.py "$build" "$QUALITY"
