# shellcheck shell=bash
# cuda-parts.sh - what test-cuda.sh and bench-cuda.sh share; they source it at the root of the tree.
#
# Where a compiler is, programs and library are built, and what they load from the system is copied to build/cuda/lib.  A copy of
# such a tree needs a driver and bash: where no compiler is, or with KVIK_BUILT=1, it is used as it is.
# Whoever sources it sets kind and parts, and ends with $failed.
#
# --dry: on the emulated device, to try the script where no GPU is; nothing that it says of speed means anything.
# shellcheck disable=SC2034,SC2154
make=${MAKE:-make}
out=build/cuda library=${KVIK_CUDA_LIBRARY:-$PWD/libkvik-cuda.so} dry='' failed=0
if [ "${1:-}" = --dry ]; then
    dry=--dry out=build/cuda-dry library=$PWD/build/release/libkvik-cuda-emulated.so
    shift
fi
mkdir -p "$out"

# build PROGRAM...: makes them and the library, and kvik.
build() {
    if [ -n "${KVIK_BUILT:-}" ] || ! command -v "${CC:-cc}" >/dev/null 2>&1; then
        export LD_LIBRARY_PATH=$PWD/build/cuda/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        return
    fi
    local targets=(kvik "$@")
    [ -z "$dry" ] || targets+=("${library#"$PWD"/}")
    [ -n "$dry" ] || [ -f "$library" ] || $make --no-print-directory cuda || exit 1
    $make --no-print-directory -s -j"$(scripts/cpus.sh)" "${targets[@]}" || exit 1
    mkdir -p build/cuda/lib
    ldd kvik "$library" "$@" | awk '$3 ~ /^\// { print $3 }' | sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libcuda)\.so' |
        xargs -r cp -Lut build/cuda/lib
}

# device: says what computes; without a GPU the script is skipped (exit 77).
device() {
    export KVIK_DEVICE=cuda KVIK_CUDA_LIBRARY=$library
    if ! why=$(build/release/test_cuda --device 2>&1); then
        echo "skipped: $why"
        exit 77
    fi
    echo "device: $why"
}

# part NAME COMMAND...: runs it for at most 10 minutes, what it prints in NAME.$kind and what it says on stderr in NAME.log, and
# writes a line to $parts.
part() {
    local name=$1 t0=$SECONDS result=passed
    shift
    timeout -k 10 600 "$@" </dev/null >"$out/$name.$kind" 2>"$out/$name.log" || { result=failed && failed=1; }
    echo "$name,$((SECONDS - t0)),$result" | tee -a "$parts"
    [ "$result" = passed ] || tail -n 20 "$out/$name.log" "$out/$name.$kind" | sed 's/^/    | /'
}
