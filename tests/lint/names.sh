#!/bin/sh
# names.sh BUILD - every global symbol starts with the name of the file that defines it.
cd "$(dirname "$0")/../.." || exit 2
find "$1" -path "$1/tests" -prune -o -name '*.o' -print | sort | while read -r o; do
    src=${o#"$1"/}; src=${src%.o}.c; stem=$(basename "$src" .c); prefix=$stem
    while read -r pat p; do
        case $pat in \#*|'') continue;; esac
        case $src in $pat) prefix=$(echo "$p" | sed "s/@/$stem/"); break;; esac
    done < tests/lint/prefixes.txt
    nm --defined-only -g "$o" | awk -v p="$prefix" -v s="$src" '
        s == "server/refusal.c" && $3 == "MHD_queue_response" { next }  # in place of the one in the library
        $3 != "main" && $3 != p && index($3, p "_") != 1 { print s ": exports " $3 ", expected " p "_*" }'
done | { ! grep .; }
