#!/bin/bash
# bench-cuda.sh [MODEL] - measures the device cuda beside the CPU in one run (make bench-cuda): every strategy of kvik bench, at the
# depths 0, 2 048 and 8 192 as far as the model's context goes. CSV and JSON go to build/cuda. Without a GPU it is skipped (exit 77).
set -u
cd "$(dirname "$0")/.." || exit 1
make=${MAKE:-make}
out=build/cuda
mkdir -p "$out"
[ -f libkvik-cuda.so ] || $make --no-print-directory cuda || exit 1
$make --no-print-directory -j"$(scripts/cpus.sh)" all build/release/test_cuda || exit 1
model=${1:-$(scripts/fetch-model.sh)} || exit 1
export KVIK_CUDA_LIBRARY=$PWD/libkvik-cuda.so
if ! why=$(build/release/test_cuda --device 2>&1); then
    echo "skipped: $why"
    exit 77
fi
echo "device: $why"
for device in cuda cpu; do
    timeout -k 10 600 ./kvik bench "$model" --device $device --runs 3 --json >"$out/bench-$device.json" 2>"$out/bench-$device.log" ||
        { echo "$device: failed" && tail -n 5 "$out/bench-$device.log"; }
    echo "$device: $out/bench-$device.json"
done
