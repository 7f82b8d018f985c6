#!/usr/bin/env bash
# run.sh FOLDER SECONDS - runs every fuzzer in FOLDER for SECONDS each, on a corpus kept under build/corpus.
set -u
cd "$(dirname "$0")/../.." || exit 2
bad=0
for f in "$1"/fuzz_*; do
    if [ ! -x "$f" ] || [ ! -f "$f" ]; then continue; fi
    name=$(basename "$f")
    mkdir -p "build/corpus/$name"
    seeds=tests/fuzz/seeds/${name#fuzz_}
    [ -d "$seeds" ] || seeds=
    echo "== $name, $2 s"
    # shellcheck disable=SC2086 # seeds is empty or one folder
    "$f" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build/corpus/$name-" \
        "build/corpus/$name" $seeds >"build/corpus/$name.log" 2>&1 || { bad=1; tail -n 40 "build/corpus/$name.log"; }
    grep -E 'number_of_executed_units|new_units_added' "build/corpus/$name.log"
done
exit $bad
