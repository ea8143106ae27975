#!/bin/sh
# kvik serve: the tests in tests/serve, which need Python alone. Each prints closing lines in cmocka's format.
cd "$(dirname "$0")/../.." || exit 99
[ -n "$(${KVIK:-./kvik} serve none --port 0 2>&1 | grep 'has no server')" ] && { echo "skipped: this build has no server (libevent)"; echo '[  SKIPPED ] 1 test(s), listed above.'; exit 77; }
rc=0
<<<<<<< HEAD
for t in completions llama_api tools structure caches salts anthropic_api responses_api ollama_api mutations scheduler turns sockets contract browser; do
=======
for t in completions llama_api tools structure anthropic_api responses_api ollama_api mutations scheduler turns reuse sockets contract browser; do
>>>>>>> 649d8743 (tests: long requests under short memory, turns in every protocol, and /health beside a long prompt)
    python3 tests/serve/$t.py || rc=1
done
exit $rc
