#!/bin/bash
# mutants.sh - proves that the bit-identity test can fail. Each patch in tests/mutants breaks one rule of the canonical
# order (K split between threads; attention summed per thread) in a copy of the tree, and tests/unit/test_identity
# must fail there. The script uses the objects of the release build, so it compiles only one file.
set -eu
cd "$(dirname "$0")/.."
make=${MAKE:-make}
$make --no-print-directory MODE=release build/release/test_identity >/dev/null
KVIK_IDENTITY=bf16 build/release/test_identity >/dev/null 2>&1 || {
    echo "mutants: the test is red before any mutation"
    exit 1
}
failed=0
for patch in tests/mutants/*.patch; do
    name=$(basename "$patch" .patch)
    dir=build/mutants/$name
    rm -rf "$dir"
    mkdir -p "$dir/build/release"
    cp -a Makefile include src tests scripts "$dir/"
    cp -a build/release/src build/release/tests "$dir/build/release/" 2>/dev/null || true
    (cd "$dir" && GIT_CEILING_DIRECTORIES=$PWD/.. git apply -p1 "tests/mutants/$name.patch") || {
        echo "mutant $name: the patch no longer applies; bring it up to date"
        failed=1
        continue
    }
    $make --no-print-directory -C "$dir" MODE=release build/release/test_identity >/dev/null
    if (cd "$dir" && KVIK_IDENTITY=bf16 build/release/test_identity) >"$dir/log" 2>&1; then
        echo "mutant $name: the identity test stayed green"
        failed=1
    elif why=$(grep -m1 -o '[a-z0-9 ,]*: step [0-9]* differs' "$dir/log"); then
        echo "mutant $name: caught ($why)"
    else
        echo "mutant $name: the identity test failed for another reason:"
        tail -n 5 "$dir/log"
        failed=1
    fi
    rm -rf "$dir"
done
exit $failed
