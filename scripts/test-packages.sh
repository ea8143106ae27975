#!/bin/bash
# test-packages.sh [PART...] - builds the packages of the last commit, installs each on a bare Debian 12 and uses it there.
#
#   deb        dpkg-buildpackage in a clean root without network, lintian, its own tests (autopkgtest) in a bare root, the bits of the
#              packaged library against those of this tree, purge
#   arm64      dpkg-buildpackage for arm64 in a clean root of this architecture, without network; the command of the package under qemu, in
#              a bare root
#   wheel      the wheel with the libraries inside, in a bare root that has Python and numpy only
#   sdist      pip builds the source distribution in a clean root, and its wheel is used
#   container  Containerfile is built of the Debian package of the part deb, on the bare root instead of an image from a registry, by
#              buildah with the isolation of a chroot, which needs no container engine; its command answers as a user without rights
#
# The roots are in packages/roots (scripts/in-root.sh): a bare one, which debootstrap makes once, and layers on it. Needs root, debootstrap and the
# network that this machine's apt and pip use. A whole run compiles kvik twice. CCACHE=DIR names a directory of ccache for both; without it they are cold.
# With the model of scripts/fetch-model.sh on this machine the command is asked for a capital, else a tiny model is used.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
roots=packages/roots
logs=packages/logs
passed=0 failed=0 skipped=0
mkdir -p $roots $logs packages/apt
[ $# -gt 0 ] || set -- deb arm64 wheel sdist container
export PATH=$PATH:/usr/sbin:/sbin
jobs=$(scripts/cpus.sh)
model=$(scripts/fetch-model.sh --offline 2>/dev/null) || model=

# check NAME COMMAND...: one test. Its output is in packages/logs.
check() {
    local name=$1 log
    log=$logs/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9\n' '-' | cut -c1-80).log
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        echo "  ok   $name"
    else
        failed=$((failed + 1))
        echo "  FAIL $name ($log)"
        tail -n 12 "$log" | cut -c1-300 | sed 's/^/         /'
        return 1
    fi
}
skip() {
    skipped=$((skipped + 1))
    echo "  skip $1"
}
# fresh NAME: an empty layer.
fresh() { rm -rf "${roots:?}/$1" "$roots/$1.work" "$roots/$1.root"; }
# inside [-n] [-b FROM:TO]... LAYER... -- COMMAND...: with apt's packages kept for the next root.
inside() { scripts/in-root.sh -b "$root/packages/apt:/var/cache/apt/archives" "$@"; }
install_in() { # LAYER... -- PACKAGE...
    local layers=()
    while [ "$1" != -- ]; do layers+=("$1"); shift; done
    shift
    inside -b "$root/packages:/packages" "${layers[@]}" -- sh -c \
        'apt-get update -q && apt-get install -y -q --no-install-recommends -o APT::Keep-Downloaded-Packages=true "$@"' sh "$@"
}
bare() { check "a bare Debian 12" scripts/in-root.sh --base $roots/base || exit 1; }
builder() { # what compiles kvik; made again when the list changes
    [ $roots/build.made -nt debian/control ] && return
    fresh build
    check "a clean root that builds, from Build-Depends" inside -b "$root/packages:/packages" $roots/build $roots/base -- sh -ec '
        apt-get update -q
        apt-get install -y -q --no-install-recommends -o APT::Keep-Downloaded-Packages=true build-essential fakeroot ccache
        apt-get build-dep -y -q --no-install-recommends -o APT::Keep-Downloaded-Packages=true /packages/deb/kvik_*.dsc
        /usr/sbin/update-ccache-symlinks
        useradd --create-home builder' || return
    touch $roots/build.made
}
# What the compiler is called, and where its cache is.
cached=()
[ -z "${CCACHE-}" ] || { mkdir -p "$CCACHE" && cached=(-b "$CCACHE:/ccache"); }
compiler=${CCACHE:+/usr/lib/ccache:}

# --- Debian packages
part_deb() {
    check "source package" scripts/make-deb.sh --source || return
    builder || return
    fresh work
    check "dpkg-buildpackage in it, as a user without rights, without network" inside -n "${cached[@]}" -b "$root/packages/deb:/deb" $roots/work $roots/build $roots/base -- \
        sh -ec "mkdir /build && cd /build && dpkg-source -x /deb/kvik_*.dsc && chown -R builder /build && cd kvik-*/
            export CCACHE_DIR=/ccache PATH=$compiler\$PATH DEB_BUILD_OPTIONS='parallel=$jobs ${DEB_BUILD_OPTIONS-}'
            [ ! -d /ccache ] || chown builder /ccache
            setpriv --reuid=builder --regid=builder --clear-groups env HOME=/build dpkg-buildpackage --no-sign --build=full --source-option=-z1
            cp /build/*.dsc /build/*.tar.xz /build/*.deb /build/*.changes /build/*.buildinfo /deb" || return
    fresh lint
    check "lintian is installed" install_in $roots/lint $roots/base -- lintian &&
        check "lintian: neither errors nor warnings" inside -n -b "$root/packages/deb:/deb" $roots/lint $roots/base -- \
            sh -c 'useradd lint; setpriv --reuid=lint --regid=lint --clear-groups lintian --no-cfg --fail-on error,warning --info /deb/kvik_*.changes'
    use_deb
}
use_deb() {
    fresh command
    check "a bare Debian 12 installs kvik" install_in $roots/command $roots/base -- "$(in_root packages/deb/kvik_*_*.deb)" || return
    check "kvik --version" inside -n $roots/command $roots/base -- kvik --version
    sed 's/^/         /' $logs/kvik---version.log
    ask_command $roots/command /usr/bin/kvik
    check "the service is there, and disabled" inside -n $roots/command $roots/base -- \
        sh -c 'test -f /lib/systemd/system/kvik.service && ! find /etc/systemd -name "kvik*" | grep .'
    check "purge leaves nothing" inside -n $roots/command $roots/base -- \
        sh -c 'dpkg --purge kvik && ! find /usr /etc /var/lib/systemd /lib/systemd -name "*kvik*" | grep .'
    fresh tests
    check "autopkgtest is installed" install_in $roots/tests $roots/base -- autopkgtest &&
        check "autopkgtest: the command, the library, the Python package" inside -b "$root/packages/deb:/deb" $roots/tests $roots/base -- \
            sh -c 'cd /tmp && autopkgtest /deb/*.deb /deb/kvik_*.dsc -- null'
    fresh python
    check "a bare Debian 12 installs python3-kvik" install_in $roots/python $roots/base -- "$(in_root packages/deb/libkvik0_*.deb)" \
        "$(in_root packages/deb/python3-kvik_*.deb)" || return
    same_bits $roots/python KVIK_PYTHON=/usr/lib/python3/dist-packages python3
}
# --- Debian packages for another architecture
part_arm64() {
    [ "$(dpkg --print-architecture)" != arm64 ] || { skip "the part deb builds for arm64 here"; return; }
    check "source package" scripts/make-deb.sh --source || return
    fresh cross
    check "a clean root that builds for arm64" inside -b "$root/packages:/packages" $roots/cross $roots/base -- sh -ec '
        dpkg --add-architecture arm64
        apt-get update -q
        apt-get install -y -q --no-install-recommends -o APT::Keep-Downloaded-Packages=true build-essential crossbuild-essential-arm64 fakeroot ccache
        apt-get build-dep -y -q --no-install-recommends -o APT::Keep-Downloaded-Packages=true -a arm64 -P cross,nocheck /packages/deb/kvik_*.dsc
        /usr/sbin/update-ccache-symlinks
        useradd --create-home builder' || return
    fresh cross-work
    rm -rf packages/arm64 && mkdir -p packages/arm64
    check "dpkg-buildpackage for arm64, without network" inside -n "${cached[@]}" -b "$root/packages:/packages" $roots/cross-work $roots/cross $roots/base -- \
        sh -ec "mkdir /build && cd /build && dpkg-source -x /packages/deb/kvik_*.dsc && chown -R builder /build && cd kvik-*/
            export CCACHE_DIR=/ccache PATH=$compiler\$PATH DEB_BUILD_PROFILES='cross nocheck' DEB_BUILD_OPTIONS='parallel=$jobs nocheck'
            [ ! -d /ccache ] || chown builder /ccache
            setpriv --reuid=builder --regid=builder --clear-groups env HOME=/build dpkg-buildpackage --no-sign --build=any --host-arch arm64
            cp /build/*_arm64.deb /packages/arm64" || return
    fresh arm64
    check "a bare Debian 12 installs it" inside -b "$root/packages:/packages" $roots/arm64 $roots/base -- sh -ec '
        dpkg --add-architecture arm64
        apt-get update -q
        apt-get install -y -q --no-install-recommends -o APT::Keep-Downloaded-Packages=true qemu-user-static /packages/arm64/kvik_*_arm64.deb' || return
    check "its kvik --version" inside -n $roots/arm64 $roots/base -- qemu-aarch64-static /usr/bin/kvik --version
    ask_command $roots/arm64 "qemu-aarch64-static /usr/bin/kvik"
}
in_root() { echo "/$1"; }
# The tree's tests lie where no package of the tree is found.
ask_command() { # LAYER COMMAND
    if [ -n "$model" ]; then
        check "the command answers: $2" inside -n -b "$model:/model.gguf" "$1" $roots/base -- \
            sh -c "$2 generate /model.gguf 'What is the capital of France?' --chat --max-new-tokens 12 | tee /dev/stderr | grep -q Paris"
    else
        skip "$2 is not asked: the model of scripts/fetch-model.sh is not here"
    fi
}
# same_bits LAYER SETTING PYTHON: the package that is installed in there computes what this tree computes.
same_bits() {
    local log=$logs/bits-$(basename "$1")
    if [ ! -f libkvik.so ] || [ ! -f python/kvik/_abi.py ]; then
        skip "the tree is not built (make), so its bits are not compared"
        return
    fi
    PYTHON=/usr/bin/python3 scripts/python.sh >/dev/null && "$(PYTHON=/usr/bin/python3 scripts/python.sh)" tests/packages/bits.py >"$log.tree" 2>&1
    inside -n -b "$root/tests:/tree/tests" "$1" $roots/base -- env "$2" "$3" /tree/tests/packages/bits.py >"$log" 2>&1
    check "$(basename "$1"): the installed package computes the bits of this tree ($(grep -c . "$log") digests)" cmp "$log" "$log.tree"
}

# --- The wheel
part_wheel() {
    check "wheel" scripts/make-wheel.sh || return
    ls -l packages/wheel/*.whl | sed 's/^/         /'
    use_wheel wheel packages/wheel
}
use_wheel() { # NAME FOLDER
    fresh "$1"
    check "$1: a bare Debian 12 with Python, pip and numpy" install_in $roots/"$1" $roots/base -- python3 python3-pip python3-venv python3-numpy || return
    check "$1: pip installs it" inside -n -b "$root/$2:/wheel" $roots/"$1" $roots/base -- \
        sh -c 'python3 -m venv --system-site-packages /opt/kvik && /opt/kvik/bin/pip install --no-index --no-deps /wheel/*.whl' || return
    check "$1: kvik --version" inside -n $roots/"$1" $roots/base -- /opt/kvik/bin/kvik --version
    check "$1: the command of pip install --user" inside -n -b "$root/$2:/wheel" $roots/"$1" $roots/base -- sh -ec 'useradd --create-home --home-dir /opt/one one
        one="setpriv --reuid=one --regid=one --clear-groups env HOME=/opt/one"
        $one python3 -m pip install --no-index --no-deps --break-system-packages --user /wheel/*.whl
        $one /opt/one/.local/bin/kvik --version'
    check "$1: that of pip install --target" inside -n -b "$root/$2:/wheel" $roots/"$1" $roots/base -- \
        sh -ec 'python3 -m pip install --no-index --no-deps --target /opt/there /wheel/*.whl && PYTHONPATH=/opt/there /opt/there/bin/kvik --version'
    check "$1: its manual page" inside -n $roots/"$1" $roots/base -- grep -q "Dt KVIK 1" /opt/kvik/share/man/man1/kvik.1
    check "$1: without a libcurl on the machine kvik pull says what to install" inside -n $roots/"$1" $roots/base -- \
        sh -c '! /opt/kvik/bin/kvik pull org/name 2>/tmp/said && grep libcurl4 /tmp/said'
    ask_command $roots/"$1" /opt/kvik/bin/kvik
    same_bits $roots/"$1" KVIK_PYTHON=/opt/kvik /opt/kvik/bin/python
    check "$1: pip uninstall leaves nothing" inside -n $roots/"$1" $roots/base -- \
        sh -c '/opt/kvik/bin/pip uninstall -y kvik && ! find /opt/kvik | grep -i kvik/.*kvik'
}

# --- The source distribution
part_sdist() {
    check "source distribution" scripts/make-sdist.sh || return
    [ -e $roots/build ] || { check "source package" scripts/make-deb.sh --source && builder; } || return
    fresh sdist-work
    rm -rf packages/sdist/built && mkdir -p packages/sdist/built
    check "pip builds it without network" inside -n "${cached[@]}" -b "$root/packages/sdist:/sdist" $roots/sdist-work $roots/build $roots/base -- \
        sh -ec "export CCACHE_DIR=/ccache CCACHE_NOHASHDIR=1 PATH=$compiler\$PATH
            mkdir /unpacked && tar -x -f /sdist/kvik-*.tar.gz -C /unpacked && cd /unpacked/kvik-* && python3 -m build --no-isolation --wheel --outdir /sdist/built ." || return
    fresh sdist
    check "sdist: a bare Debian 12 with Python, numpy and the libraries" install_in $roots/sdist $roots/base -- python3 python3-pip python3-venv python3-numpy libjansson4 \
        libnettle8 libpcre2-8-0 libsndfile1 libsoxr0 libunistring2 liburing2 libutf8proc2 libedit2 libevent-2.1-7 libcurl3-gnutls libhiredis0.14 libzmq5 || return
    check "sdist: pip installs the wheel" inside -n -b "$root/packages/sdist/built:/wheel" $roots/sdist $roots/base -- \
        sh -c 'python3 -m venv --system-site-packages /opt/kvik && /opt/kvik/bin/pip install --no-index --no-deps /wheel/*.whl' || return
    check "sdist: kvik --version" inside -n $roots/sdist $roots/base -- /opt/kvik/bin/kvik --version
    same_bits $roots/sdist KVIK_PYTHON=/opt/kvik /opt/kvik/bin/python
}

# --- The container
part_container() {
    local storage=packages/container
    ls packages/deb/kvik_*_*.deb >/dev/null 2>&1 || part_deb || return
    fresh buildah
    rm -rf $storage && mkdir -p $storage
    cp Containerfile $storage/
    check "buildah is installed" install_in $roots/buildah $roots/base -- buildah crun || return
    cat >$storage/buildah <<'S'
#!/bin/sh
exec buildah --storage-driver vfs --root /packages/container/storage --runroot /packages/container/run "$@"
S
    chmod +x $storage/buildah
    in_buildah() { inside -b "$root/packages:/packages" -b "$root/$roots/base:/bare" "$@"; }
    check "buildah builds Containerfile" in_buildah $roots/buildah $roots/base -- sh -ec 'b=/packages/container/buildah
        c=$($b from scratch) && $b add --quiet $c /bare / && $b commit --quiet $c localhost/bare && $b rm $c
        $b bud --isolation chroot --build-arg BASE=localhost/bare --file /packages/container/Containerfile --tag kvik /packages/deb
        $b from --name kvik-run localhost/kvik && $b images' || return
    # buildah with the isolation of a chroot ends as soon as the command has, and loses what it has not copied by then of the output (1.28.2:
    # nothing waits for its relay). So what a command prints is looked at in the container, and only its exit status outside.
    check "its command runs, as user 10001" in_buildah -n $roots/buildah $roots/base -- sh -ec 'b=/packages/container/buildah
        run() { $b run --isolation chroot kvik-run -- sh -c "$1"; }
        run "kvik --version | grep \"^kvik [0-9]\""
        run "test \$(id -u):\$(id -g) = 10001:10001"
        if run "echo >/usr/bin/kvik"; then exit 1; fi
        $b inspect --type image --format "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}" localhost/kvik | grep -x "\[kvik\] 10001:10001"'
    if [ -n "$model" ]; then
        check "and answers" in_buildah -n -b "$model:/model.gguf" $roots/buildah $roots/base -- sh -c '/packages/container/buildah run --isolation chroot \
            --volume /model.gguf:/model.gguf:ro kvik-run -- sh -c "kvik generate /model.gguf \"What is the capital of France?\" --chat --max-new-tokens 12 | grep Paris"'
    else
        skip "the container is not asked: the model of scripts/fetch-model.sh is not here"
    fi
    rm -rf $storage
}

for part in "$@"; do
    echo "== $part"
    case $part in
    deb | use_deb | arm64 | wheel | sdist | container)
        bare
        [ "$part" = use_deb ] || part=part_$part
        $part
        ;;
    *)
        echo "test-packages: unknown part $part (deb, arm64, wheel, sdist, container)" >&2
        exit 2
        ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
