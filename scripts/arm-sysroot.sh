#!/bin/sh
# arm-sysroot.sh DIR - unpacks Debian's arm64 libraries that kvik and its tests link into DIR (make test-arm).
#
# apt gets a state directory of its own, so that nothing is installed on this system and root is not needed. The
# sources are those of the system. Needs network once; a directory that is complete is left as it is.
set -eu
dir=$1
[ ! -e "$dir/complete" ] || exit 0
packages="libc6-dev libjansson-dev libpcre2-dev libutf8proc-dev nettle-dev libunistring-dev liburing-dev libsndfile1-dev
libsoxr-dev zlib1g-dev libedit-dev libcmocka-dev"
say() { echo "arm-sysroot: $*" >&2; }
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    { say "needs apt-get and dpkg-deb: there is no Debian here"; exit 1; }
rm -rf "$dir"
mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial" "$dir/root"
: >"$dir/apt/status"
at=$(cd "$dir/apt" && pwd)
get() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$at" -o Dir::State::status="$at/status" \
        -o Dir::State::lists="$at/lists" -o Dir::Cache="$at" -o Dir::Cache::archives="$at/archives" \
        -o Debug::NoLocking=1 -o APT::Sandbox::User= -o APT::Install-Recommends=0 "$@"
}
if ! { get update && get install -y --download-only $packages; } >"$dir/apt/log" 2>&1; then
    tail -n 5 "$dir/apt/log" >&2
    say "apt-get could not fetch Debian's arm64 packages; the whole log is $dir/apt/log"
    exit 1
fi
for deb in "$dir"/apt/archives/*.deb; do
    dpkg-deb -x "$deb" "$dir/root"
done
# Links to absolute names would leave the directory.
find "$dir/root" -type l -lname '/*' | while read -r link; do
    ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$dir/root$(readlink "$link")")" "$link"
done
rm -rf "$dir/apt"
: >"$dir/complete"
