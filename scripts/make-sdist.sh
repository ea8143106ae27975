#!/bin/bash
# make-sdist.sh - the source distribution of the Python package, of the last commit, in packages/sdist: the package, the library and the
# command, without tests. pip builds it with a compiler and the -dev packages that ./bootstrap deps installs.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
out=packages/sdist
python=$(scripts/packages-python.sh)
rm -rf "$out"
mkdir -p "$out/tree"
git archive HEAD | tar -x -C "$out/tree"
cd "$out/tree"
"$root/$python" -m build --no-isolation --sdist --outdir .. . >../log 2>&1 || { tail -n 20 ../log; exit 1; }
rm -rf "$root/$out/tree"
ls -l "$root/$out"/*.tar.gz
