#!/bin/bash
# make-deb.sh [--source] - the Debian packages of the last commit, in packages/deb.
#
# They are built on this machine, whose packages debian/control names; --source makes the source package alone, which a
# clean root builds (scripts/test-packages.sh). DEB_BUILD_OPTIONS="nocheck parallel=4" means what it means to Debian.
set -eu
cd "$(dirname "$0")/.."
out=packages/deb
name=kvik-$(dpkg-parsechangelog -l debian/changelog -S Version)
rm -rf "$out"
mkdir -p "$out/$name"
# A source package has no tokenizer whose licence forbids some uses: only tests of text read it.
git archive HEAD -- . ':!tests/golden/tokenizers/llama2' ':!tests/golden/tokenizers/llama2.jsonl' ':!.ci' | tar -x -C "$out/$name"
if [ "${1-}" = --source ]; then
    cd "$out"
    exec dpkg-source -z1 --build "$name"
fi
cd "$out/$name"
dpkg-buildpackage --no-sign --build=full --source-option=-z1 # tests are most of it, and get hardly smaller
