#!/bin/sh
# Files of a model whose name exists but cannot be read: broken links, as a download that is not complete leaves them, loops,
# FIFOs, directories, files behind a directory without permission.  None of them counts as absent, and none blocks.
. "$(dirname "$0")/lib.inc"
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99
mkdir "$work/closed"
: >"$work/closed/x"
chmod 0 "$work/closed"
chmod 755 "$work"

# Root may look into every directory, so these cases run as nobody.
as_nobody=
if [ "$(id -u)" = 0 ]; then
    as_nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
    $as_nobody test -x "$(realpath "$KVIK")" 2>/dev/null || as_nobody=none
fi

# put KIND PATH: makes something of this name that cannot be read.
put() {
    rm -rf "$2"
    case $1 in
    dangling) ln -s ../blobs/gone "$2" ;;
    loop) ln -s "$(basename "$2")" "$2" ;;
    fifo) mkfifo "$2" ;;
    directory) mkdir "$2" ;;
    closed) ln -s "$work/closed/x" "$2" ;;
    esac
}
said() {
    case $1 in
    dangling) echo "a broken link: its target ../blobs/gone is not there" ;;
    loop) echo "symbolic links" ;;
    fifo | directory) echo "not a regular file" ;;
    closed) echo "Permission denied" ;;
    esac
}
# refuses KIND NAME ARGS...: the command names the file and says what is wrong with it.
refuses() {
    kind=$1 name=$2
    shift 2
    last="kvik $*"
    if [ "$kind" = closed ] && [ -n "$as_nobody" ]; then
        # shellcheck disable=SC2086
        timeout -k 5 $patience $as_nobody "$(realpath "$KVIK")" "$@" >"$work/out" 2>"$work/err" </dev/null
        rc=$?
    else
        run "$@"
    fi
    refused "$1: $name: $kind" 1 "$name" "$(said "$kind")"
}

kinds="dangling loop fifo directory"
if [ "$as_nobody" = none ]; then skip "the user nobody cannot run $KVIK"; else kinds="$kinds closed"; fi
for kind in $kinds; do
    for file in config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json \
        special_tokens_map.json chat_template.jinja chat_template.json; do
        rm -rf "$work/m"
        cp -r "$work/tiny" "$work/m"
        put "$kind" "$work/m/$file"
        refuses "$kind" "$file" generate "$work/m" hello --max-new-tokens 2
        case $file in tokenizer* | special* | chat*) refuses "$kind" "$file" tokenize "$work/m" hello ;; esac
    done
    rm -rf "$work/m"
    cp -r "$work/tiny" "$work/m"
    rm "$work/m/model.safetensors"
    put "$kind" "$work/m/model.safetensors.index.json"
    refuses "$kind" model.safetensors.index.json generate "$work/m" hello
    rm -rf "$work/m/model.safetensors.index.json"
    printf '{"weight_map": {"model.norm.weight": "part-1.safetensors"}}' >"$work/m/model.safetensors.index.json"
    put "$kind" "$work/m/part-1.safetensors"
    refuses "$kind" part-1.safetensors generate "$work/m" hello
    put "$kind" "$work/m.gguf"
    [ "$kind" = directory ] || refuses "$kind" m.gguf generate "$work/m.gguf" hello
    rm -rf "$work/w"
    cp -r tests/fixtures/speech/tiny "$work/w"
    put "$kind" "$work/w/preprocessor_config.json"
    refuses "$kind" preprocessor_config.json transcribe "$work/w" tests/fixtures/audio/tone.wav
done

# What has no name is absent, as before.
rm -rf "$work/m"
cp -r "$work/tiny" "$work/m"
rm -f "$work/m/generation_config.json" "$work/m/tokenizer_config.json" "$work/m/special_tokens_map.json"
run generate "$work/m" --input-ids 5,6,7 --max-new-tokens 2
check "absent optional files are no error" status 0

# kvik inspect reads the first bytes of a file to tell a session from a model.
mkfifo "$work/fifo"
run inspect "$work/fifo"
refused "inspect does not wait at a FIFO" 1 "not a regular file"

# kvik's own cache: a broken link is told, and a cache of another user does not hide the other places.
mkdir -p "$work/home/.cache/kvik"
ln -s gone "$work/home/.cache/kvik/m.gguf"
HOME="$work/home" XDG_CACHE_HOME='' run generate m hello
refused "a broken link in kvik's own cache" 1 "m.gguf: a broken link"
chmod 755 "$work/closed"
finish
