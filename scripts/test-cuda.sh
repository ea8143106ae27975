#!/bin/bash
# test-cuda.sh - tests the device cuda on a GPU (make test-cuda); on a machine without one it says so and is skipped (exit 77).
#
# Builds libkvik-cuda.so unless it is there, or $KVIK_CUDA_LIBRARY is, then runs each operation against the scalar reference, kernels over
# the shapes of test_dev_guard, golden cases, tests of identity and sessions, and compute-sanitizer where it is installed. A line for
# each goes to build/cuda/test.csv, and what it printed
# to build/cuda/NAME.log. Each part has 10 minutes.
set -u
cd "$(dirname "$0")/.." || exit 1
make=${MAKE:-make}
out=build/cuda
mkdir -p "$out"
tests="cuda cuda_guard golden identity legacy session_dir"
library=${KVIK_CUDA_LIBRARY:-$PWD/libkvik-cuda.so}
if command -v "${CC:-cc}" >/dev/null 2>&1; then # else the tree was built where a compiler is: make cuda test-cuda there, once
    [ -f "$library" ] || $make --no-print-directory cuda || exit 1
    # shellcheck disable=SC2086
    $make --no-print-directory -j"$(scripts/cpus.sh)" all $(printf ' build/release/test_%s' $tests) || exit 1
fi
export KVIK_DEVICE=cuda KVIK_CUDA_LIBRARY=$library
model=$(scripts/fetch-model.sh 2>/dev/null) || model=
if ! why=$(build/release/test_cuda --device 2>&1); then
    echo "skipped: $why"
    exit 77
fi
echo "device: $why"
echo "part,seconds,result" >"$out/test.csv"
failed=0

# part NAME COMMAND...: runs one part and writes its line.
part() {
    local name=$1 t0=$SECONDS result=passed
    shift
    timeout -k 10 600 "$@" </dev/null >"$out/$name.log" 2>&1 || { result=failed && failed=1; }
    echo "$name,$((SECONDS - t0)),$result" | tee -a "$out/test.csv"
    [ "$result" = passed ] || tail -n 20 "$out/$name.log" | sed 's/^/    | /'
}

part operations build/release/test_cuda real
part shapes env KVIK_TEST_LONG=1 build/release/test_cuda_guard real
for p in A B C D own; do part "golden-$p" build/release/test_golden "$p"; done
for t in identity legacy session_dir; do part "$t" build/release/test_"$t"; done
[ -z "$model" ] || part model ./kvik generate "$model" "The sea" --max-new-tokens 20 --device cuda
# The same greedy text without graphs and without tensor cores.
same() { # NAME=VALUE
    diff <(./kvik generate "$model" "The sea" --max-new-tokens 20 --device cuda) <(env "$1" ./kvik generate "$model" "The sea" --max-new-tokens 20 --device cuda)
}
export -f same && export model
[ -z "$model" ] || for v in KVIK_CUDA_GRAPHS=no KVIK_CUDA_TENSOR=no; do part "${v%=no}" bash -c "same $v"; done
if command -v compute-sanitizer >/dev/null 2>&1; then
    for tool in memcheck racecheck synccheck; do
        part "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 build/release/test_cuda real
        part "$tool-shapes" compute-sanitizer --tool "$tool" --error-exitcode 1 build/release/test_cuda_guard real
    done
else
    echo "compute-sanitizer is not installed: memcheck, racecheck and synccheck are not run"
fi
exit $failed
