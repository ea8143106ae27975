#!/bin/sh
# kvik serve: the tests in tests/serve, which need Python alone. Each prints closing lines in cmocka's format.
cd "$(dirname "$0")/../.." || exit 99
[ -n "$(${KVIK:-./kvik} serve none --port 0 2>&1 | grep 'has no server')" ] && { echo "skipped: this build has no server (libevent)"; echo '[  SKIPPED ] 1 test(s), listed above.'; exit 77; }
rc=0
for t in completions texts llama_api tools structure caches salts store anthropic_api responses_api ollama_api wrong_types mutations scheduler turns reuse saved documents events exposition sockets speech environment contract browser; do
    python3 tests/serve/$t.py || rc=1
done
exit $rc
