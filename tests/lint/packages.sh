#!/bin/sh
# packages.sh BINARY - `config/debian.sh run` installs what the binary is linked with: where dpkg knows which package has a library.
set -eu
for tool in dpkg-query ldd objdump; do
    command -v $tool >/dev/null || { echo "lint: $tool is not installed, packages not checked"; exit 0; }
done
status=0
listed=" $(config/debian.sh list run | tr '|\n' '  ') "
for library in $(objdump -p "$1" | sed -n 's/^ *NEEDED *//p'); do
    path=$(ldd "$1" | sed -n "s|^[[:space:]]*$library => \([^ ]*\) .*|\1|p")
    package=$(dpkg-query -S "$(readlink -f "${path:-$library}")" 2>/dev/null | head -n 1 | cut -d: -f1)
    case $listed in
    *" $package "*) ;;
    *) [ -z "$package" ] || { echo "lint: config/debian.sh run lacks $package, which has $library" >&2; status=1; } ;;
    esac
done
exit $status
