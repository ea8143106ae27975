#!/bin/sh
# Names of models: directories with one .gguf file, repository ids in the hub cache, names of other programs; kvik models, kvik run.
. "$(dirname "$0")/lib.inc"
tiny=$PWD/$golden/models/llama-mha
gemma=$PWD/$golden/models/gemma3.gguf
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME
export HOME="$work/home"
hub=$HOME/.cache/huggingface/hub
own=$HOME/.cache/kvik
commit=0123456789abcdef0123456789abcdef01234567

# repo ORG NAME: makes an empty repository in the hub cache; its snapshot is $snapshot.
repo() {
    snapshot=$hub/models--$1--$2/snapshots/$commit
    mkdir -p "$snapshot" "$hub/models--$1--$2/refs" "$hub/models--$1--$2/blobs"
    printf %s $commit >"$hub/models--$1--$2/refs/main"
}
opens() {
    run generate "$2" --input-ids 5 --max-new-tokens 1
    check "$1" status 0
}

# Nothing there yet.
run models
check "no caches: succeeds" status 0
check "no caches: nothing on stdout" out_empty
check "no caches: says where it looked and how to fetch" err_has "$hub or $own; kvik pull"
run models --json
check "no caches: an empty list" json "o == []"
run generate google/gemma-3-270m --input-ids 5
refused "an absent repository: where it looked, the command that fetches it" 1 "hub cache $hub" "kvik pull google/gemma-3-270m"
HF_HOME="$work/elsewhere" run generate google/gemma-3-270m --input-ids 5
refused "HF_HOME moves the cache" 1 "$work/elsewhere/hub"
HF_HUB_CACHE="$work/there" run generate google/gemma-3-270m --input-ids 5
refused "HF_HUB_CACHE moves it" 1 "hub cache $work/there;"
run generate gemma-three --input-ids 5
refused "a word: where it looked" 1 "$hub" "$own" "kvik models"

# Directories.
mkdir -p "$work/one" "$work/two" "$work/none"
ln "$gemma" "$work/one/tiny.gguf" 2>/dev/null || cp "$gemma" "$work/one/tiny.gguf"
opens "a directory with one .gguf" "$work/one"
opens "with a slash behind" "$work/one/"
cp "$work/one/tiny.gguf" "$work/one/mmproj-tiny.gguf"
opens "the part for images does not count" "$work/one"
cp "$gemma" "$work/two/a.gguf"
cp "$gemma" "$work/two/b.gguf"
run generate "$work/two" --input-ids 5
refused "a directory with two names them" 1 "2 .gguf files" "$work/two/FILE" "a.gguf, b.gguf"
run inspect "$work/none"
refused "a directory with nothing" 1 "not a model"
cp -R "$tiny" "$work/both"
cp "$gemma" "$work/both/x.gguf"
run inspect "$work/both" --json
check "safetensors win over .gguf in one directory" json "o['format'] == 'safetensors'"
mkdir "$work/broken"
ln -s /nonexistent "$work/broken/m.gguf"
run inspect "$work/broken"
refused "a directory with a link to nothing" 1 m.gguf "broken link"
mkdir "$work/many"
i=0
while [ $i -lt 200 ]; do i=$((i + 1)); : >"$work/many/model-with-a-rather-long-name-$i.gguf"; done
run inspect "$work/many"
refused "200 files: a sentence of bounded length" 1 "200 .gguf files" "\.\.\."

# The hub cache.
repo org safe
for f in config.json generation_config.json model.safetensors; do
    cp "$tiny/$f" "$hub/models--org--safe/blobs/$f"
    ln -s "../../blobs/$f" "$snapshot/$f"
done
opens "a repository with safetensors" org/safe
repo org gguf
cp "$gemma" "$hub/models--org--gguf/blobs/x"
ln -s ../../blobs/x "$snapshot/m.gguf"
opens "a repository with one .gguf" org/gguf
opens "a file of a repository" org/gguf/m.gguf
repo org several
cp "$gemma" "$snapshot/q4.gguf"
cp "$gemma" "$snapshot/q8.gguf"
run generate org/several --input-ids 5
refused "a repository with two .gguf names them" 1 "org/several/FILE" "q4.gguf, q8.gguf"
opens "one of them" org/several/q8.gguf
repo org partial
ln -s ../../blobs/gone "$snapshot/m.gguf"
run generate org/partial --input-ids 5
refused "a download that is not complete: fetch again" 1 "not complete" "kvik pull org/partial"
repo org pickle
cp "$tiny/config.json" "$snapshot"
: >"$snapshot/pytorch_model.bin"
run generate org/pickle --input-ids 5
refused "a repository with pickled weights: how to convert" 1 pytorch_model.bin save_pretrained
repo org norefs
cp "$gemma" "$snapshot/m.gguf"
rm "$hub/models--org--norefs/refs/main"
opens "without refs/main the only snapshot counts" org/norefs
opens "a commit" org/norefs@$commit
opens "the first digits of a commit" org/norefs@012345
run generate org/norefs@543210 --input-ids 5
refused "another commit" 1 "kvik pull org/norefs@543210 "
for content in '../../../../..' 'zz' ''; do
    repo org odd
    mkdir -p "$hub/models--org--odd/snapshots/2"
    printf %s "$content" >"$hub/models--org--odd/refs/main"
    run generate org/odd --input-ids 5
    refused "refs/main with \"$content\": the file, what is wrong, what mends it" 1 "$hub/models--org--odd/refs/main" "no commit" "kvik pull org/odd "
done
head -c 100000 /dev/zero >"$hub/models--org--odd/refs/main"
run generate org/odd --input-ids 5
refused "refs/main with 100000 NUL bytes" 1 "$hub/models--org--odd/refs/main: 100000 bytes" "kvik pull org/odd "
HF_HUB_OFFLINE=1 run pull org/odd
refused "refs/main with 100000 NUL bytes, without network" 1 "$hub/models--org--odd/refs/main: 100000 bytes" HF_HUB_OFFLINE
run rm org/odd@main
refused "refs/main with 100000 NUL bytes, rm of main" 1 "$hub/models--org--odd/refs/main: 100000 bytes" "kvik rm org/odd "
mkdir -p "$hub/models--odd/refs"
: >"$hub/models--odd/refs/main"
run generate odd --input-ids 5
refused "a repository without an organization" 1 "$hub/models--odd/refs/main" "no commit" "kvik pull odd "
rm -r "$hub/models--odd"
repo org gone
rmdir "$snapshot"
run generate org/gone --input-ids 5
refused "refs/main without its snapshot" 1 "$hub/models--org--gone/refs/main" "commit $commit" "not in $hub/models--org--gone/snapshots" "kvik pull org/gone "
run generate org/gone@other --input-ids 5
refused "a revision without a file" 1 "no such model in the hub cache"
rm -r "$hub/models--org--gone"
mkfifo "$hub/pipe"
ln -s loop "$hub/models--loop--loop"
mkdir -p "$hub/models--" "$hub/datasets--a--b" "$hub/models----"
repo "$(printf 'a\033[31m')" b
cp "$gemma" "$snapshot/m.gguf"
: >"$hub/models--file--not-a-folder"
repo org future
printf '{"model_type": "mamba9"}' >"$snapshot/config.json"
cp "$tiny/model.safetensors" "$snapshot"

# kvik's own cache.
mkdir -p "$own"
cp "$gemma" "$own/small.gguf"
: >"$own/empty.gguf"
ln -s nowhere "$own/dangling.gguf"
mkfifo "$own/pipe.gguf"
mkdir "$own/folder.gguf"
opens "a file of kvik's own cache" small.gguf
opens "without its suffix" small

# kvik models.
run models
check "models succeeds" status 0
check "models: nothing on stderr" err_empty
check "models: a repository" out_has '^org/safe  .* llama  *[fF]32 .*models--org--safe'
check "models: a file" out_has '^small.gguf .* gemma3 '
check "models: files of one repository each" out_has '^org/several:q8.gguf '
check "models: a link to nothing" out_has '^dangling.gguf .*('
check "models: an architecture that this version lacks" out_has '^org/future .*mamba9 .*(this version'
check "models: no escape reaches the terminal" sh -c "! grep -q '$(printf '\033')' '$work/out'"
check "models: data sets are not listed" sh -c "! grep -q datasets '$work/out'"
run models --json
check "models --json" status 0
check "--json: a model" json "[m for m in o if m['name'] == 'org/safe'][0].items() >= {'cache': 'hub', 'architecture': 'llama', 'supported': True, 'quantization': 'f32', 'bytes': 616192, 'file_bytes': 619256}.items()"
check "--json: reasons" json "all('no' in [m for m in o if m['name'] == n][0]['error'] or [m for m in o if m['name'] == n][0]['error'] for n in ('empty.gguf', 'dangling.gguf', 'pipe.gguf', 'org/partial', 'org/pickle'))"
check "--json: every path is there or has an error" json "all('error' in m or __import__('os').path.exists(m['path']) for m in o)"
names=$(python3 -c 'import json, sys; print(" ".join(m["name"] for m in json.load(open(sys.argv[1])) if "error" not in m and m["supported"] and m["name"].isprintable()))' "$work/out")
for name in $names; do
    opens "every command takes the name $name" "$name"
done
check "there are names" [ "$(echo "$names" | wc -w)" -ge 6 ]
run models --names
check "models --names: one a line, those of the table" same "$(sort "$work/out" | tr '\n' ' ')" "$(./kvik models --json | python3 -c 'import json, sys; print("".join(sorted(m["name"] + " " for m in json.load(sys.stdin) if m["name"].isprintable())), end="")')"
run models extra
refused "models takes no argument" 2 "no arguments"

# Names of other programs.
run chat llama3.2:1b
refused "an Ollama name: what kvik takes" 1 "name of Ollama" "Hugging Face directory" ".gguf" "ollama show llama3.2:1b --modelfile"
run generate https://huggingface.co/google/gemma-3-270m/tree/main --input-ids 5
refused "a URL of the hub" 1 "kvik pull https://huggingface.co/google/gemma-3-270m/tree/main "
run generate hf.co/bartowski/Llama-GGUF:Q4_K_M --input-ids 5
refused "a URL as Ollama writes it" 1 "kvik pull hf.co/bartowski/Llama-GGUF:Q4_K_M "
opens "a page of the hub, whose model is here" https://huggingface.co/org/safe
run generate https://example.com/model.gguf --input-ids 5
refused "another URL" 1 URL "curl -LO"
run generate "https://huggingface.co/$(printf '\033')[31m/x" --input-ids 5
refused "a URL with an escape" 1 URL
run generate org/name:Q4_K_M --input-ids 5
refused "a quantization that is not here" 1 "kvik pull org/name:Q4_K_M "
opens "a quantization that is here" org/several:q8
run generate org/several:q5 --input-ids 5
refused "a quantization that is not here, of a repository that is" 1 "kvik pull org/several:q5 "
run generate ./absent.gguf --input-ids 5
refused "a file that is not there" 1 "no such file"
run generate "$(python3 -c 'print("a" * 5000)')" --input-ids 5
refused "a name of 5000 letters" 1 -i "path\|file"
run generate "$(python3 -c 'print("a/" * 2000 + "b.gguf")')" --input-ids 5
refused "a path of 2000 folders" 1 -i "path\|file"
run generate "" --input-ids 5
refused "an empty name" 1 "no such file"
run generate SMALL.GG --input-ids 5
refused "a part of a name in kvik's own cache: the whole name" 1 "did you mean small.gguf?"

# kvik run is kvik chat.
python3 "$OLDPWD/tests/cli/tiny.py" "$tiny" "$work/talk" 2>/dev/null || python3 tests/cli/tiny.py "$tiny" "$work/talk"
printf 'Hi\n' | "$KVIK" run "$work/talk" --max-new-tokens 3 >"$work/run" 2>/dev/null
check "run talks" [ -s "$work/run" ]
run run --help
check "run --help calls itself run" out_has "^usage: kvik run MODEL"
run --help
check "--help has models" out_has 'kvik models'
check "--help has run" out_has 'kvik run'
finish
