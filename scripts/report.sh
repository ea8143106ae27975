#!/bin/sh
# report.sh MODEL - measures every cache strategy once (make report), and renews what shows the figures: docs/caches.svg, docs/growth.svg, the
# page build/caches.html, bench/results/caches.json, and the tables between markers in README.md, docs/GUIDE.md and
# docs/COMPARISON.md.  BENCH_OPTIONS adds options of kvik bench.
set -eu
cd "$(dirname "$0")/.."
./kvik bench "$1" --caches --text docs/CACHE.md --depths 0,512,1024,2048 --report build/caches.html --json \
    ${BENCH_OPTIONS-} >build/caches.json
scripts/guide-report.py build/caches.json
sed -n '/^<!-- caches -->/,/^<!-- .caches -->/p' README.md
