#!/bin/sh
# The pages for readers: every command of README.md runs, in order, in a directory with what a build leaves; the options in the
# tables of docs/GUIDE.md are accepted (tests/python/test_guide_page.py runs its snippets); every program that a page names exists. bench measures little, so that the test takes
# seconds. The answers are those that the page quotes.
. "$(dirname "$0")/lib.inc"
root=$PWD

# Prints the commands of the indented lines, one a line, without comments.
commands() {
    awk '/^    / { line = line substr($0, 5); if (sub(/\\$/, "", line)) next; sub(/ +#.*/, "", line); print line; line = "" }' "$1"
}

check "README: the pages and the picture that it shows exist" sh -c \
    "sed 's/](\\([^)#]*\\)[^)]*)/\\n@\\1\\n/g' README.md | sed -n 's/^@//p' | grep -v : | xargs ls >/dev/null"
check "README: the tests and benchmarks that it names exist" sh -c \
    "grep -o 'tests/[a-z]*/[a-z_]*\\.[a-z]*' README.md | xargs ls >/dev/null && for b in \$(grep -o 'bench_[a-z]*' README.md); do ls bench/\${b#bench_}.c >/dev/null || exit 1; done"
check "README: the picture is an image" python3 -c "from xml.dom import minidom; minidom.parse('docs/caches.svg')"
check "README: the markers of the table stand" sh -c "grep -q '^<!-- caches -->' README.md && grep -q '^<!-- /caches -->' README.md"
for page in GUIDE COMING-FROM COMPARISON PYTHON; do
    check "docs/$page.md: the pages and pictures that it links exist" sh -c \
        "cd docs && sed 's/](\\([^)#]*\\)[^)]*)/\\n@\\1\\n/g' $page.md | sed -n 's/^@//p' | grep -v : | grep . | xargs ls >/dev/null"
done
check "the reference of the Python package has its classes" sh -c \
    "scripts/make-python-reference.py python/kvik '$work/reference.md' && for n in 'DynamicCache(' 'SinkCache(window_length' OutOfMemoryError 'pipeline(' PreTrainedModel; do grep -qF \"### \$n\" '$work/reference.md' || exit 1; done; grep -qF '**\`transcribe(recording' '$work/reference.md' && grep -qF BartForConditionalGeneration '$work/reference.md'"
check "docs/COMPARISON.md: the tests that it names exist" sh -c \
    "grep -o 'tests/[a-z]*/[a-z_]*\\.[a-z]*' docs/COMPARISON.md | xargs ls >/dev/null"
check "docs/growth.svg is an image" python3 -c "from xml.dom import minidom; minidom.parse('docs/growth.svg')"
check "docs/COMING-FROM.md: the functions that it names are in kvik.h" sh -c \
    "for f in \$(grep -o 'kvik_[a-z_]*[a-z]' docs/COMING-FROM.md | sort -u); do grep -q \$f include/kvik.h || exit 1; done"
check "docs/GUIDE.md: the programs that it names exist" sh -c \
    "sed -n 's/.*| \\(.*\\) |\$/\\1/p' docs/GUIDE.md | grep -o '[a-z_]*\\.c' | sed 's|^|examples/c/|' | xargs ls >/dev/null"
check "demo builds the shared library, which the C example needs" sh -c \
    "${MAKE:-make} -n MODE=release -W src/api/libkvik.map demo | grep -q 'ln -f .*libkvik.so'"

# The tiny model accepts each command of the guide; two of them need a window or a chunk of the model.
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99
python3 tests/cli/tiny.py $golden/models/gemma2 "$work/windows" || exit 99
sed -n '/^## The code of the Transformers guide/,$p' docs/GUIDE.md | grep -o '`[^`]*`' | tr -d '`' | grep '^kvik generate\|^--' >"$work/guide"
n=0
while read -r line; do
    case $line in kvik*) ;; *) line="kvik generate \$MODEL TEXT $line" ;; esac
    case $line in *sliding_window* | *hybrid*) MODEL=$work/windows ;; *) MODEL=$work/tiny ;; esac
    PREFIX=once A=a B=b DIR=$work/prompts
    line=$(echo "$line" | sed 's/"max_cache_len":1024/"max_cache_len":64/; s/"q_group_size":64/"q_group_size":16/')
    n=$((n + 1)) last=$line
    eval "timeout -k 5 $patience $KVIK ${line#kvik } --max-new-tokens 4" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
    check "guide: $line" status 0
done <"$work/guide"
check "guide: all commands were found" test $n -ge 12

# Prints the answer with this word that README.md quotes.
quoted() { tr '\n' ' ' <"$root/README.md" | grep -o "\*The $1[^*]*\.\*" | tr -d '*'; }

model=$(KVIK_TEST_MODEL=${KVIK_TEST_MODEL-} scripts/fetch-model.sh --offline 2>/dev/null) || model=
if [ -z "$model" ] || [ ! -f libkvik.so ]; then
    skip "README: its commands (the model or libkvik.so is not here)"
    finish
    exit
fi
mkdir -p "$work/home/.cache/kvik" "$work/there"
ln -s "$model" "$work/home/.cache/kvik/SmolLM2-135M-Instruct.Q4_1.gguf"
mkdir "$work/there/python" && cp -r python/kvik "$work/there/python"
python3 scripts/make-abi.py include/kvik.h "$work/there/python/kvik/_abi.py" # a second make of this tree may run beside this test
python=$(scripts/python.sh 2>/dev/null) || python=
[ "${python#/}" = "$python" ] && [ -e "$root/$python" ] && python=$root/$python # build/venv
for f in libkvik.so libkvik.so.0 examples include; do ln -s "$root/$f" "$work/there/$f"; done
ln -s "$(readlink -f "$KVIK")" "$work/there/kvik"
commands README.md >"$work/commands"
check "README: its commands were found" test "$(wc -l <"$work/commands")" -ge 12
cd "$work/there" || exit 99
HOME=$work/home
export HOME
unset XDG_CACHE_HOME XDG_STATE_HOME
n=0
while read -r line; do
    case $line in
    ./bootstrap*) continue ;; # the test of the whole repository runs these
    "make python && "*)
        if [ -z "$python" ]; then
            skip "README: $line (no Python with numpy)"
            continue
        fi
        line=$(echo "${line#*&& }" | sed "s| python3 | $python |")
        ;;
    *"kvik run"* | *"kvik chat"*) line="$line --max-new-tokens 24" ;;
    *"kvik bench"*) line="$line --depths 0,64 --runs 1 --steps 1" ;;
    *sink*) line=$(echo "$line" | sed 's/-new-tokens 600/-new-tokens 300/g') ;; # beyond the window, too
    esac
    last=$line n=$((n + 1))
    printf 'What is a fjord?\n/fork other\n/cache\n' >"$work/in"
    eval "$line" >"$work/out" 2>"$work/err" <"$work/in"
    rc=$?
    check "README: $last" status 0
    case $line in
    *Gudrun*)
        check "README: the second question has the answer of the page" out_has "$(quoted Gudrun)"
        check "README: the second question reuses the first" err_has "$(grep -o '[0-9]* prompt tokens reused' "$root/README.md")"
        ;;
    *warehouse*--prefix-cache*)
        check "README: the first question has the answer of the page" out_has "$(quoted building)"
        cp "$work/out" "$work/answer"
        ;;
    *offloaded*) check "README: offloaded gives the same answer" cmp -s "$work/out" "$work/answer" ;;
    *quantized*) check "README: 4 bits give the answer of the page" out_has "$(quoted building)" ;;
    *sink*) check "README: the story goes on" err_has 'decode 300 tokens' ;;
    *prefix.py*) check "README: the package shares the prompt" out_has 'tokens of the prefix' ;;
    *"./fork"*) check "README: forks share the prompt" out_has 'are shared' ;;
    esac
done <"$work/commands"
cd "$root" || exit 99
finish
