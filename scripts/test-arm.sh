#!/bin/bash
# test-arm.sh [NAME...] - cross-compiles for 64-bit ARM and runs tests under qemu-user (make test-arm).
#
# Tests of kernels compare every instruction set of the processor with the scalar reference. They run on a processor
# with everything that qemu has (max) and on one without dot products (cortex-a72), where qemu also refuses
# instructions that kvik should not have used. Golden cases run once for each instruction set; the tests of identity
# run all of them themselves. Tests link Debian's arm64 libraries from build/arm/sysroot, which the first run fetches.
# NAME chooses tests, such as dev_mm, arch_identity or golden. Nothing here measures speed: qemu is an emulator.
set -u
cd "$(dirname "$0")/.." || exit 1
say() { echo "test-arm: $*" >&2; }
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || qemu=
if [ -z "$qemu" ] || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
    say "needs a cross compiler and an emulator: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
    exit 77
fi
scripts/arm-sysroot.sh build/arm/sysroot || exit 77
root=$PWD/build/arm/sysroot/root
logs=build/arm/logs
jobs=$(scripts/cpus.sh)
mkdir -p "$logs"
rm -f "$logs"/*

units="dev_guard dev_math dev_mm dev_attn dev_kvwrite dev_probe dev_scan dev_delta codec codec_kernels arch_identity identity"
wanted() { [ ${#only[@]} = 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }
only=("$@")
tests=()
for name in $units golden; do wanted "$name" && tests+=("build/arm/test_$name"); done
export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig
${MAKE:-make} --no-print-directory -j"$jobs" MODE=arm CI=true CC="aarch64-linux-gnu-gcc --sysroot=$root" \
    LD=aarch64-linux-gnu-ld AR=aarch64-linux-gnu-ar OBJCOPY=aarch64-linux-gnu-objcopy \
    build/arm/kvik "${tests[@]}" || exit 1

# run CPU ISA TEST ARGUMENT...: one line with the result. ISA - : what kvik chooses.
run() {
    local cpu=$1 isa=$2 name t0=$SECONDS rc what=passed
    shift 2
    name="$(basename "$1") ${*:2}"
    [ "$isa" = - ] || export KVIK_ISA=$isa
    local log=$logs/${name// /-}-$cpu-$isa.log
    timeout -k 10 "${KVIK_TEST_TIMEOUT:-3000}" "$qemu" -L "$root" -cpu "$cpu" "$@" >"$log" 2>&1 </dev/null
    rc=$?
    case $rc in 0) ;; 77) what=skipped ;; *) what="FAILED ($rc)" ;; esac
    printf '  %-24s %-12s %-10s %6d s  %s\n' "$name" "$cpu" "$isa" $((SECONDS - t0)) "$what"
    [ "$rc" = 0 ] || [ "$rc" = 77 ] || tail -n 30 "$log" | sed 's/^/    | /'
    case $rc in 0 | 77) return 0 ;; *) touch "$logs/failed" && return 1 ;; esac
}
queue() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    run "$@" &
}
export KVIK_THREADS=1 KVIK_TEST_SHORT=${KVIK_TEST_SHORT-1} KVIK_TEST_MODEL=${KVIK_TEST_MODEL-none}
if [ ${#only[@]} = 0 ]; then
    queue max - build/arm/kvik --version
    queue cortex-a72 - build/arm/kvik --version
fi
for name in $units; do
    wanted "$name" || continue
    queue max - "build/arm/test_$name"
    case $name in dev_*) queue cortex-a72 - "build/arm/test_$name" ;; esac
done
if wanted golden; then
    for part in A B; do
        for isa in ref neon neondot neoni8mm; do queue max $isa build/arm/test_golden $part; done
        queue cortex-a72 - build/arm/test_golden $part
    done
fi
wait
if [ -e "$logs/failed" ]; then
    say "failed; logs are in $logs"
    exit 1
fi
echo "test-arm: all passed in $SECONDS s"
