#!/bin/bash
# test-classes.sh - prints one line per class of tests/fixtures/classes.txt: PASS with the test that covers it, LATER
# with the reason, or FAIL if no test names it or its test does not pass.
#
# A test names a class by a comment "class: ID" (several IDs separated by commas). Results come from build/logs if they
# are newer than the binary, because make test has just run the tests. Otherwise the script builds the named unit
# tests and runs them under ASan.
set -u
cd "$(dirname "$0")/.." || exit 1
logs=build/logs
mkdir -p $logs
passed=0 failed=0 later=0

# Lists "ID file:line" for every class named in a test.
named=$(grep -rnE 'class: ' tests --include='*.c' --include='*.h' --include='*.sh' | awk -F: '{
    text = $0; sub(/.*class: */, "", text); sub(/\*\/.*/, "", text)
    n = split(text, id, /[ ,;]+/)
    for (i = 1; i <= n; i++) { # the IDs end where prose begins
        if (id[i] == "") continue
        if (id[i] !~ /^[a-z]*#[0-9]+$|^(CVE|GHSA|TALOS)-[0-9a-z-]+$|^mmap-sigbus$/) break
        print id[i], $1 ":" $2
    }
}')

# verdict FILE: prints nothing if the test in this file passed, else the reason.
verdict() {
    local name mode rc seen=
    name=$(basename "$1"); name=${name%.*}
    case $1 in
    tests/unit/*) set -- "asan-$name" "release-$name" ;;
    tests/fuzz/*) set -- "asan-replay-${name#fuzz_}" ;;
    tests/cli/*) set -- "cli-$name" ;;
    *) echo "is in no test program"; return ;;
    esac
    for mode; do
        [ -f "$logs/$mode.rc" ] || continue
        seen=1
        read -r rc _ <"$logs/$mode.rc"
        [ "$rc" = 0 ] || { echo "$mode failed, see $logs/$mode.log"; return; }
    done
    [ -n "$seen" ] || echo "has not run"
}

# If make test has not run, run the named tests that have no fresh result.
for f in $(echo "$named" | sed 's/^[^ ]* //; s/:[0-9]*$//' | sort -u); do
    name=$(basename "$f" .c)
    case $f in
    tests/unit/*.c)
        if [ ! -f "$logs/asan-$name.rc" ] || [ "$f" -nt "$logs/asan-$name.rc" ]; then
            KVIK_TEST_SHORT=1 ${MAKE:-make} --no-print-directory MODE=asan build/asan/"$name" >/dev/null 2>&1 &&
                KVIK_TEST_SHORT=1 build/asan/"$name" >"$logs/asan-$name.log" 2>&1
            echo "$? 0" >"$logs/asan-$name.rc"
        fi
        ;;
    tests/cli/*.sh)
        name=${name%.sh}
        if [ ! -f "$logs/cli-$name.rc" ] || [ "$f" -nt "$logs/cli-$name.rc" ]; then
            ${MAKE:-make} --no-print-directory kvik >/dev/null 2>&1 && KVIK=./kvik "$f" >"$logs/cli-$name.log" 2>&1
            echo "$? 0" >"$logs/cli-$name.rc"
        fi
        ;;
    esac
done

while IFS='|' read -r ids status what || [ -n "$ids" ]; do
    case $ids in '' | '# '* | '#') continue ;; esac
    ids=${ids% } status=${status# } status=${status% } what=${what# }
    first=${ids%% *}
    case $status in
    later:*)
        echo "LATER $first: ${status#later: }"
        later=$((later + 1))
        continue
        ;;
    esac
    where= why="no test names it: write one with the comment \"class: $first\""
    for id in $ids; do
        for place in $(echo "$named" | awk -v id="$id" '$1 == id { print $2 }'); do
            why=$(verdict "${place%:*}")
            if [ -z "$why" ]; then [[ " $where " == *" $place "* ]] || where="$where $place"; else why="$place $why"; break 2; fi
        done
    done
    if [ -n "$where" ] && [ -z "$why" ]; then
        echo "PASS  $first: $what [${where# }]"
        passed=$((passed + 1))
    else
        echo "FAIL  $first: $what -- $why"
        failed=$((failed + 1))
    fi
done <tests/fixtures/classes.txt

# An id without a row is a typing error, and would hide a row without a test.
unknown=$(echo "$named" | awk 'NR == FNR { if ($0 !~ /^# |^#$/) { sub(/\|.*/, ""); for (i = 1; i <= NF; i++) row[$i] = 1 }; next }
    NF && !($1 in row) { print $1 " (" $2 ")" }' tests/fixtures/classes.txt -)
if [ -n "$unknown" ]; then
    echo "FAIL  not in tests/fixtures/classes.txt: $unknown"
    failed=$((failed + 1))
fi

echo "classes: $passed pass, $failed fail, $later later"
[ "$failed" = 0 ] && [ "$passed" != 0 ] # a table that cannot be read has no rows
