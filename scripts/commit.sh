#!/bin/sh
# commit.sh - prints a line of C that names the commit of this tree, with + behind it where files were changed since. An archive has the
# name in scripts/commit.txt, where git archive has put it. The script prints nothing where the commit is not known.
cd "$(dirname "$0")/.." || exit 1
name=$(sed -n 's/^\([0-9a-f]\{12\}\)[0-9a-f]\{28\}$/\1/p' scripts/commit.txt 2>/dev/null)
if [ -z "$name" ] && [ -e .git ]; then
    name=$(git rev-parse --short=12 HEAD 2>/dev/null)
    [ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || name=$name+
fi
[ -z "$name" ] || echo "#define KVIK_COMMIT \"$name\""
