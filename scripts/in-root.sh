#!/bin/bash
# in-root.sh [-n] [-b FROM:TO]... LAYER... -- COMMAND...
#
# Runs a command as root in a Debian that is made of directories: the first LAYER is written, those behind it are only
# read. A layer that is missing is made. -n: without network, but for 127.0.0.1. -b: the file or directory FROM of this
# machine is TO in there. The command sees processes of its own alone, and they end with it. Needs root.
#
#   in-root.sh --base DIR    makes DIR, a bare Debian 12, with the sources and settings of this machine's apt (or MIRROR=URL)
set -eu

fail() {
    echo "in-root: $1" >&2
    exit 1
}

# What apt of this machine says about where packages come from, which is no part of the repository.
base() {
    [ ! -e "$1/etc/debian_version" ] || return 0
    command -v debootstrap >/dev/null || fail "needs debootstrap (apt-get install debootstrap)"
    local new=$1.new mirror=${MIRROR-} f
    [ -n "$mirror" ] || mirror=$({
        sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources
        sed -n 's/^deb  *\(\[[^]]*\]  *\)\{0,1\}\([^ ]*\).*/\2/p' /etc/apt/sources.list
    } 2>/dev/null | head -n 1)
    [ -n "$mirror" ] || fail "this machine's apt names no mirror of Debian; MIRROR=URL says one"
    rm -rf "$1" "$new"
    debootstrap --variant=minbase --include=ca-certificates bookworm "$new" "$mirror" >"$new.log" 2>&1 ||
        fail "debootstrap failed; see $new.log"
    for f in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
        [ ! -f "$f" ] || grep -q '^Suites:' "$f" && rm -f "$new/etc/apt/sources.list"
        [ ! -f "$f" ] || cp "$f" "$new$f"
    done
    for f in $(grep -ls 'Acquire::' /etc/apt/apt.conf /etc/apt/apt.conf.d/*); do
        case $f in */docker-*) ;; *) cp "$f" "$new$f" ;; esac
    done
    cp /etc/ssl/certs/ca-certificates.crt "$new/etc/ssl/certs/" 2>/dev/null || true
    # No service starts in a root that no init runs.
    printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d" && chmod 755 "$new/usr/sbin/policy-rc.d"
    rm -f "$new"/var/cache/apt/archives/*.deb
    mv "$new" "$1"
}

# In a mount name space of its own.
inside() {
    local top=$1 lower=$2 net=$3 m f
    shift 3
    m=$top.root
    mkdir -p "$m" "$top" "$top.work"
    if [ -n "$lower" ]; then
        mount -t overlay overlay -o "lowerdir=$lower,upperdir=$top,workdir=$top.work" "$m" ||
            fail "this kernel has no overlay file system for $m"
    else
        mount --bind "$top" "$m"
    fi
    mount -t proc proc "$m/proc"
    mount --rbind /dev "$m/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$m/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$m/run"
    for f in /etc/resolv.conf /etc/hosts; do
        [ -e "$f" ] && [ -z "$net" ] || continue
        [ -e "$m$f" ] || : >"$m$f"
        mount --bind "$(readlink -f "$f")" "$m$f"
    done
    [ -z "$net" ] || ip link set lo up 2>/dev/null || true
    while [ "$1" != -- ]; do # what is bound
        f=$m${1#*:}
        if [ -d "${1%%:*}" ]; then mkdir -p "$f"; elif [ ! -e "$f" ]; then : >"$f"; fi
        mount --bind "${1%%:*}" "$f"
        shift
    done
    shift
    exec chroot "$m" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
}

if [ "${1-}" = --inside ]; then
    shift
    inside "$@"
fi
[ "$(id -u)" = 0 ] || fail "needs root, for mounts and chroot"
if [ "${1-}" = --base ]; then
    base "$2"
    exit
fi
net='' binds=()
while getopts nb: o; do
    case $o in
    n) net=off ;;
    b) binds+=("$OPTARG") ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
layers=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    layers+=("$(realpath -m "$1")")
    shift
done
[ $# -gt 1 ] && [ ${#layers[@]} -gt 0 ] || fail "usage: in-root.sh [-n] [-b FROM:TO]... LAYER... -- COMMAND..."
shift
lower=$(IFS=:; echo "${layers[*]:1}")
exec unshare --mount --pid --fork --kill-child ${net:+--net} "$0" --inside "${layers[0]}" "$lower" "$net" "${binds[@]}" -- "$@"
