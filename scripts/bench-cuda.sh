#!/bin/bash
# bench-cuda.sh [--dry] [MODEL] - measures the device cuda beside the floors of the GPU (make bench-cuda), in parts of at most 10
# minutes each.  Without a GPU it is skipped (exit 77).  build/cuda then has
#
#   floors.csv   rates of copies and of GEMM (bench/floors.c)
#   bench.csv    decode, offload and prefill of models of random weights, beside the floors (bench/cuda.c), and Transformers' caches
#                where python3 has torch and transformers
#   fork.csv     forks and beams, on the GPU and on the CPU
#   bench-parts.csv  the parts, their seconds, and which failed; of each NAME.csv and NAME.log
#
# The models take at most 15 GB in $TMPDIR (/var/tmp), one at a time.  MODEL: one that `kvik bench` measures too, as does a
# SmolLM2 that is there.  --dry: tiny shapes on the emulated device (scripts/cuda-parts.sh).
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/cuda-parts.sh
. scripts/cuda-parts.sh
programs="build/release/test_cuda build/release/bench_floors build/release/bench_random_model build/release/bench_cuda"
# shellcheck disable=SC2086
build $programs
device
parts=$out/bench-parts.csv kind=csv
echo "part,seconds,result" >"$parts"
rm -f "$out"/{decode,offload,prefill,fork,transformers}-*.csv # of an earlier run
shapes="1b 7b"
[ -z "$dry" ] || shapes=tiny
[ -z "$dry" ] || export KVIK_CUDA_TENSOR=no # emulated, each token would cost as 32
tmp=$(mktemp -d "${TMPDIR:-/var/tmp}/kvik-cuda-XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

part floors build/release/bench_floors ${dry:+$dry}
for shape in $shapes; do
    for type in bf16 q4_k; do
        model=$tmp/$shape-$type.gguf
        part "model-$shape-$type" build/release/bench_random_model "$model" "$shape" "$type"
        for what in decode offload prefill fork; do
            part "$what-$shape-$type" build/release/bench_cuda "$out/floors.csv" "$model" "$what" ${dry:+$dry}
        done
        [ "$shape" = 7b ] || part "fork-$shape-$type-cpu" env KVIK_DEVICE=cpu build/release/bench_cuda "$out/floors.csv" "$model" fork ${dry:+$dry}
        rm -f "$model"
    done
done
if [ -z "$dry" ] && python3 -c 'import torch, transformers; assert torch.cuda.is_available()' 2>/dev/null; then
    for shape in $shapes; do part "transformers-$shape" python3 bench/peers/caches.py "$shape"; done
else
    echo "transformers: python3 has no torch that finds a GPU, or no transformers; its caches are not measured"
fi
model=${1:-}
[ -n "$model" ] || [ -n "$dry" ] || model=$(scripts/fetch-model.sh --offline 2>/dev/null) || model=
for device in ${model:+cuda cpu}; do
    part "whole-$device" ./kvik bench "$model" --device "$device" --runs 3 --json
done
{
    echo "what,model,depth,batch,ms,tokens a second,amount,unit,floor,ms of the floor,share,holds"
    cat "$out"/{decode,offload,prefill,transformers}-*.csv 2>/dev/null
} >"$out/bench.csv"
{
    echo "fork,device,model,depth,us of a fork,rows copied,ms of a token,of the first token of a fork,of 8 beams,of 8 rows,share"
    cat "$out"/fork-*.csv
} >"$out/fork.csv"
echo "$out/floors.csv, $out/bench.csv, $out/fork.csv"
exit $failed
