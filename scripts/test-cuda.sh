#!/bin/bash
# test-cuda.sh [--dry] - tests the device cuda on a GPU (make test-cuda), in parts of at most 10 minutes each; on a machine without
# one it says so and is skipped (exit 77).
#
# Each operation against the scalar reference, kernels over the shapes of test_dev_guard, golden cases, tests of identity and
# sessions; divergence from the CPU, sessions that go from device to device, and memory of the device that others have taken
# (tests/unit/test_devices.c); and compute-sanitizer where it is installed.  build/cuda then has
#
#   test.csv      the parts, their seconds, and which failed; of each what it printed is NAME.out, and NAME.log
#   devices.csv   the figures of test_devices
#
# --dry: a few parts, on the emulated device (scripts/cuda-parts.sh).
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/cuda-parts.sh
. scripts/cuda-parts.sh
tests="cuda cuda_guard cuda_seal devices golden identity legacy padded session_dir"
[ -z "$dry" ] || tests="cuda devices golden"
# shellcheck disable=SC2046,SC2086
build $(printf 'build/release/test_%s ' $tests)
device
parts=$out/test.csv kind=out
echo "part,seconds,result" >"$parts"
rm -f "$out"/*.out # of an earlier run
models="tests/golden/models/llama-d64 tests/golden/models/llama-bf16"
model=
[ -n "$dry" ] || model=$(scripts/fetch-model.sh 2>/dev/null) || model=

part operations build/release/test_cuda real
for m in $models $model; do
    for t in kld sessions; do part "$t-$(basename "$m")" build/release/test_devices "${dry:-real}" "$t" "$m"; done
done
part memory build/release/test_devices "${dry:-real}" memory
{
    echo "what,model,case,tokens,mean divergence,greatest,result"
    cat "$out"/{kld,sessions,memory}*.out | grep -E '^(kld|session|memory),'
} >"$out/devices.csv"
if [ -n "$dry" ]; then
    part golden build/release/test_golden B -o llama-d64
    echo "$out/test.csv, $out/devices.csv"
    exit $failed
fi

part tiles build/release/test_cuda_seal real
part shapes env KVIK_TEST_LONG=1 build/release/test_cuda_guard real
for p in A B C D own; do part "golden-$p" build/release/test_golden "$p"; done
for t in identity legacy padded session_dir; do part "$t" build/release/test_"$t"; done
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
        part "$tool-tiles" compute-sanitizer --tool "$tool" --error-exitcode 1 build/release/test_cuda_seal real
        part "$tool-shapes" compute-sanitizer --tool "$tool" --error-exitcode 1 build/release/test_cuda_guard real
    done
else
    echo "compute-sanitizer is not installed: memcheck, racecheck and synccheck are not run"
fi
exit $failed
