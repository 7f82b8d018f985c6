#!/usr/bin/env bash
# run.sh BUILD - runs every test program of a build, then the script tests; counts passed, failed and skipped.
#
# C tests use cmocka, one program a file. Script tests are executable files tests/{api,real}/test_*; they print lines
# "ok NAME", "not ok NAME: why" and "skip NAME: what to install". ONLY=PATTERN restricts to names that match, WITHOUT=PATTERN leaves
# names out.
# RUNNER=COMMAND runs the test programs of another architecture's build, and no script tests.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
export OXINFERD=$PWD/$build/oxinferd
limit=${TEST_TIMEOUT:-600}
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

count() { # count PATTERN : different lines of the log that match (cmocka lists a failure twice)
    grep -E "$1" "$log" | sort -u | wc -l
}

wanted() { # wanted NAME
    [[ (-z ${ONLY:-} || $1 =~ $ONLY) && (-z ${WITHOUT:-} || ! $1 =~ $WITHOUT) ]]
}

report() { # report NAME STATUS PASSED FAILED SKIPPED
    local name=$1 rc=$2 ok=$3 bad=$4 skip=$5
    if [ "$rc" != 0 ] && [ "$bad" = 0 ]; then
        bad=1
        [ "$rc" = 124 ] && echo "$name: still running after $limit s"
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    if [ "$bad" != 0 ]; then
        echo "FAIL $name (status $rc)"
        tail -n 60 "$log" | sed 's/^/    /'
    else
        echo "ok   $name ($ok passed$([ "$skip" = 0 ] || echo ", $skip skipped"), $((SECONDS - began)) s)"
        grep -hE '^skip |SKIPPED.*:' "$log" | sed 's/^/     /'
    fi
}

for t in $(find "$build/tests" -type f -name 'test_*' -perm -u+x 2>/dev/null | sort); do
    name=${t#"$build/tests/"}
    wanted "$name" || continue
    began=$SECONDS
    # shellcheck disable=SC2086 # RUNNER is a list of words
    CMOCKA_MESSAGE_OUTPUT=stdout timeout "$limit" ${RUNNER:-} "$t" >"$log" 2>&1
    rc=$?
    report "$name" $rc "$(count '^\[       OK \]')" "$(count '^\[  FAILED  \] [a-z_0-9]+$')" "$(count '^\[  SKIPPED \] [a-z_0-9]+$')"
done

for t in tests/api/test_* tests/real/test_*; do
    if [ -n "${RUNNER:-}" ] || [ ! -x "$t" ] || [ ! -f "$t" ]; then continue; fi
    name=${t#tests/}
    wanted "$name" || continue
    began=$SECONDS
    timeout "$limit" "$t" >"$log" 2>&1
    rc=$?
    report "$name" $rc "$(count '^ok ')" "$(count '^not ok ')" "$(count '^skip ')"
done

echo "$passed passed, $failed failed, $skipped skipped, $SECONDS s"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
