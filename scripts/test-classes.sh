#!/bin/bash
# test-classes.sh - one line per class of tests/fixtures/classes.txt: PASS with the test that covers
# it, LATER with the reason, or FAIL when no test names it or its test does not pass.
#
# A test names a class by a comment "class: ID" (several: separated by commas).  The results are
# those of build/logs when they are newer than the binary (make test has just run them); otherwise
# the named unit tests are built and run here under ASan.
set -u
cd "$(dirname "$0")/.." || exit 1
logs=build/logs
mkdir -p $logs
passed=0 failed=0 later=0

# "ID file:line" for every class named in a test.
named=$(grep -rnE 'class: ' tests --include='*.c' --include='*.h' --include='*.sh' | awk -F: '{
    text = $0; sub(/.*class: */, "", text); sub(/\*\/.*/, "", text)
    n = split(text, id, /[ ,;]+/)
    for (i = 1; i <= n; i++) { # the IDs end where prose begins
        if (id[i] == "") continue
        if (id[i] !~ /^[a-z]*#[0-9]+$|^(CVE|GHSA|TALOS)-[0-9a-z-]+$|^mmap-sigbus$/) break
        print id[i], $1 ":" $2
    }
}')

# verdict FILE: did the test in this file pass?  Prints nothing when it did, else why not.
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

# Standing alone, run what is named and has no fresh result.
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

while IFS='|' read -r ids status what; do
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

# Ids that no row has are typing errors, and would hide a row without a test.
unknown=$(echo "$named" | awk 'NR == FNR { if ($0 !~ /^# |^#$/) { sub(/\|.*/, ""); for (i = 1; i <= NF; i++) row[$i] = 1 }; next }
    NF && !($1 in row) { print $1 " (" $2 ")" }' tests/fixtures/classes.txt -)
if [ -n "$unknown" ]; then
    echo "FAIL  not in tests/fixtures/classes.txt: $unknown"
    failed=$((failed + 1))
fi

echo "classes: $passed pass, $failed fail, $later later"
[ "$failed" = 0 ]
