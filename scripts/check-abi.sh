#!/bin/sh
# check-abi.sh [write] - compares libkvik.so with the binary interface that is committed as scripts/libkvik-0.abi.
#
# make check-abi fails if a function was removed, a function or a struct field was added, or a layout has changed. After
# a change that breaks no program (see "Versions" in include/kvik.h), run make abi and commit the description with the
# change. The script exits with 77, which counts as skipped, if abidiff (package abigail-tools) is missing or the
# processor is another one than the description's.
set -u
cd "$(dirname "$0")/.." || exit 1
abi=scripts/libkvik-0.abi
lib=${LIBKVIK:-libkvik.so}
if ! command -v abidiff >/dev/null 2>&1; then
    echo "check-abi: skipped, abidiff is not installed (apt-get install abigail-tools)"
    exit 77
fi
if [ "$(uname -m)" != x86_64 ]; then
    echo "check-abi: skipped, $abi describes x86_64"
    exit 77
fi
[ -f "$lib" ] || { echo "check-abi: $lib is not built; run make"; exit 1; }

# Describes only the declarations of include/kvik.h; the layout of internal types may change freely.
describe() { # FILE
    abidw --headers-dir include --drop-private-types --exported-interfaces-only --no-corpus-path \
        --no-comp-dir-path --no-show-locs --no-elf-needed --no-parameter-names --type-id-style hash \
        --out-file "$1" "$lib"
}
if [ "${1-}" = write ]; then
    describe "$abi" || exit 1
    echo "check-abi: wrote $abi"
    exit 0
fi
# Both descriptions are made in the same way: with suppressions, abidiff would ignore changes of layout.
now=$(mktemp) || exit 1
trap 'rm -f "$now"' EXIT
describe "$now" || exit 1
report=$(abidiff "$abi" "$now")
rc=$?
[ $rc != 0 ] || { echo "check-abi: $lib has the interface of $abi"; exit 0; }
echo "$report"
if [ $((rc & 3)) != 0 ]; then
    echo "check-abi: abidiff failed (exit $rc)"
else
    echo "check-abi: $lib differs from $abi (above).  If nothing was removed, reordered or resized in the" \
        "middle, run make abi and commit the description; otherwise programs that use the library would break."
fi
exit 1
