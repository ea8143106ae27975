#!/bin/sh
# report.sh MODEL - measures every cache strategy, then writes docs/caches.svg, build/caches.html, and the table between the
# markers <!-- caches --> and <!-- /caches --> of README.md; prints the table. BENCH_OPTIONS adds options of kvik bench.
set -eu
cd "$(dirname "$0")/.."
./kvik bench "$1" --caches --text docs/CACHE.md --svg docs/caches.svg --report build/caches.html --markdown ${BENCH_OPTIONS-} \
    >build/caches.md
awk '
/^<!-- caches -->/ { print; print ""; while ((getline line <"build/caches.md") > 0) print line; print ""; inside = 1 }
/^<!-- \/caches -->/ { inside = 0 }
!inside && !/^<!-- caches -->/ { print }' README.md >build/README.md
grep -q '^<!-- /caches -->' build/README.md
cat build/README.md >README.md
cat build/caches.md
