#!/bin/sh
# registry.sh - every NAME.c beside a .def file has one line there, sorted, and every line has a file.
cd "$(dirname "$0")/../.." || exit 2
bad=0
while read -r def skip; do
    dir=$(dirname "$def")
    listed=$(sed -n 's/^[A-Z_]*(\([a-z0-9_]*\).*/\1/p' "$def")
    [ "$listed" = "$(echo "$listed" | LC_ALL=C sort -u)" ] || { echo "$def: lines are not sorted and unique"; bad=1; }
    files=$(cd "$dir" && ls *.c | sed 's/\.c$//' | grep -vxE "$skip" | LC_ALL=C sort)
    d=$(printf '%s\n' "$listed" "$files" | LC_ALL=C sort | uniq -u)
    [ -z "$d" ] || { echo "$def: without a file or without a line: "$d; bad=1; }
done <<'TABLE'
engine/family/families.def   families|hyper
engine/tokenizer/tokenizers.def tokenizers|added|detok|fim|gguf|hf|ids|merge|folder|normal|open|patterns|pretok|regex|stops|text|vocab|vocabtxt
engine/weights/formats.def   formats|directory|folder|jsonfile|meta|mlx|own|shard|weights
kernels/quant/quants.def     quants|encode|parts
TABLE
exit $bad
