#!/bin/sh
# debian.sh PURPOSE - makes sure Debian's packages for a purpose are there: build, run (a binary that was built elsewhere), test,
# browser (the web page's tests), fuzz or aarch64. debian.sh list PURPOSE prints them instead.
#
# A|B: one of them will do, and A is installed when there is none: it keeps OpenSSL out of a process that has GnuTLS anyway.
# Installs what is missing when it may (root, or sudo without a password); else prints the line to run and fails.
set -eu

build="gcc make pkg-config libuv1-dev libmicrohttpd-dev libgnutls28-dev libcurl4-gnutls-dev|libcurl4-openssl-dev libsqlite3-dev libjansson-dev libpcre2-dev libutf8proc-dev libinih-dev libsndfile1-dev libmpg123-dev libvorbis-dev libsoxr-dev libpng-dev libjpeg62-turbo-dev libwebp-dev zlib1g-dev"
run="libuv1 libmicrohttpd12 libgnutls30 libcurl3-gnutls|libcurl4 libsqlite3-0 libjansson4 libpcre2-8-0 libutf8proc2 libinih1 libsndfile1 libmpg123-0 libvorbisfile3 libsoxr0 libpng16-16 libjpeg62-turbo libwebp7 zlib1g libc6 ca-certificates"
test="libcmocka-dev curl python3"
browser="chromium chromium-driver"
fuzz="clang libclang-rt-14-dev"
aarch64="make gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"

list=
if [ "${1:-}" = list ]; then list=yes; shift; fi
case ${1:-build} in
build) want=$build ;;
run) want=$run ;;
test) want="$build $test" ;;
browser) want=$browser ;;
fuzz) want="$build $fuzz" ;;
aarch64) want=$aarch64 ;;
*) echo "usage: $0 [list] build|run|test|browser|fuzz|aarch64" >&2; exit 2 ;;
esac
if [ -n "$list" ]; then echo "$want" | tr ' ' '\n'; exit; fi

missing=
for p in $want; do
    found=
    for one in $(echo "$p" | tr '|' ' '); do
        if dpkg-query -W -f '${db:Status-Status}' "$one" 2>/dev/null | grep -qx installed; then found=1; fi
    done
    [ -n "$found" ] || missing="$missing ${p%%|*}"
done
[ -n "$missing" ] || exit 0

line="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
    sudo=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo=sudo
else
    echo "Missing Debian packages. Run as root:" >&2
    echo "  apt-get update && $line" >&2
    exit 1
fi
echo "Installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # line is a list of words
$sudo $line >/dev/null 2>&1 || { $sudo apt-get update -qq && $sudo $line >/dev/null; }
