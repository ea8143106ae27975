#!/bin/bash
# test-cuda.sh - tests the device cuda on a GPU (make test-cuda); on a machine without one it says so and is skipped (exit 77).
#
# Builds libkvik-cuda.so unless it is there, then runs each operation against the scalar reference, the golden cases, the tests
# that name a device, and compute-sanitizer where it is installed. A line for each goes to build/cuda/test.csv, and what it printed
# to build/cuda/NAME.log. Each part has 10 minutes.
set -u
cd "$(dirname "$0")/.." || exit 1
make=${MAKE:-make}
out=build/cuda
mkdir -p "$out"
[ -f libkvik-cuda.so ] || $make --no-print-directory cuda || exit 1
$make --no-print-directory -j"$(scripts/cpus.sh)" all build/release/test_cuda build/release/test_golden build/release/test_identity \
    build/release/test_probe_reference build/release/test_interchange build/release/test_legacy build/release/test_padded \
    build/release/test_session_dir || exit 1
export KVIK_DEVICE=cuda KVIK_CUDA_LIBRARY=$PWD/libkvik-cuda.so
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
for p in A B C D own; do part "golden-$p" build/release/test_golden "$p"; done
for t in identity probe_reference interchange legacy padded session_dir; do part "$t" build/release/test_"$t"; done
[ -z "$model" ] || part model ./kvik generate "$model" "The sea" --max-new-tokens 20 --device cuda
if command -v compute-sanitizer >/dev/null 2>&1; then
    for tool in memcheck racecheck synccheck; do
        part "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 build/release/test_cuda real
    done
else
    echo "compute-sanitizer is not installed: memcheck, racecheck and synccheck are not run"
fi
exit $failed
