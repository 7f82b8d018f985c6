#!/bin/sh
# headers.sh - every header compiles alone.
cd "$(dirname "$0")/../.." || exit 2
bad=0
flags=$(pkg-config --cflags libuv libmicrohttpd jansson libpcre2-8 libutf8proc)
for h in $(find base kernels gpu codecs config engine server -name '*.h' | sort); do
    # shellcheck disable=SC2086 # flags is a list of words
    echo "#include \"$h\"" | ${CC:-gcc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -I. $flags -fsyntax-only -x c - ||
        { echo "$h: does not compile alone"; bad=1; }
done
exit $bad
