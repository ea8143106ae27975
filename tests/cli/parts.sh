#!/bin/sh
# Models in several .gguf files: the same tokens as in one, and what is told when a part is missing, is another's, or lies.
. "$(dirname "$0")/lib.inc"
tokens() { run generate "$1" --input-ids 5,6,7,8 --max-new-tokens 12; }
split() { python3 tests/cli/gguf.py "$1" "$2" "split=$3" || exit 99; }
for model in gemma3 granite mamba; do
    whole=$golden/models/$model.gguf
    tokens "$whole"
    cp "$work/out" "$work/whole"
    for n in 2 5; do
        mkdir "$work/$model-$n"
        split "$whole" "$work/$model-$n/m" $n
        tokens "$work/$model-$n/m-00001-of-0000$n.gguf"
        check "$model in $n parts: exit 0" status 0
        check "$model in $n parts: the same tokens" cmp -s "$work/whole" "$work/out"
        tokens "$work/$model-$n"
        check "the directory of $model in $n parts: the same tokens" cmp -s "$work/whole" "$work/out"
    done
done
at=$work/gemma3-2
first=$at/m-00001-of-00002.gguf
second=$at/m-00002-of-00002.gguf
tokens "$second"
check "the second part: exit 1" status 1
check "the second part: the first is named" err_has "part 2 of 2 of a model: give the first, $first"

broken() { # NAME PATTERN
    tokens "$first"
    check "$1: exit 1" status 1
    check "$1: says so" err_has "$2"
    mv "$work/kept" "$second"
}
mv "$second" "$work/kept"
broken "a part that is missing" "m-00002-of-00002.gguf, part 2 of 2, is missing: download it too"
mv "$second" "$work/kept"
ln -s nowhere "$second"
broken "a part that is a broken link" "m-00002-of-00002.gguf"
mv "$second" "$work/kept"
cp "$first" "$second"
broken "a part that is another's copy" "is part 2 of 2 by its name, and part 1 of 2 by its contents"
mv "$second" "$work/kept"
cp "$work/gemma3-5/m-00002-of-00005.gguf" "$second"
broken "a part of another split" "is part 2 of 2 by its name, and part 2 of 5 by its contents"
mv "$second" "$work/kept"
cp $golden/models/gemma3.gguf "$second"
broken "a whole model in place of a part" "is part 2 of 2 by its name, and part 1 of 1 by its contents"
mv "$second" "$work/kept"
cp "$work/granite-2/m-00002-of-00002.gguf" "$second"
broken "a part of another model" "2 parts with [0-9]* tensors, and the first says [0-9]*"
mv "$second" "$work/kept"
head -c 9000 "$work/kept" >"$second"
broken "a part that is cut" "m-00002-of-00002.gguf: tensor .* reaches past the end of the file"
mv "$second" "$work/kept"
mkfifo "$second"
broken "a FIFO in place of a part" "m-00002-of-00002.gguf"

twice=$work/granite-5
cp "$twice/m-00002-of-00005.gguf" "$work/kept"
python3 - "$twice" <<'PYTHON' || exit 99
import sys
of = sys.argv[1] + "/m-0000%d-of-00005.gguf"
data = bytearray(open(of % 2, "rb").read())
at = data.index(b"split.no") + 8 + 4  # the length of a key is before it, the type behind
data[at : at + 2] = (2).to_bytes(2, "little")
open(of % 3, "wb").write(data)
PYTHON
run generate "$twice" --input-ids 5
check "a tensor in two parts: exit 1" status 1
check "a tensor in two parts: says so" err_has "occurs twice\|tensors, and the first says"
cp "$first" "$work/renamed.gguf"
run generate "$work/renamed.gguf" --input-ids 5
check "a part with another name: exit 1" status 1
check "a part with another name: says which" err_has "part 1 of 2, whose name must end with -00001-of-00002.gguf"
finish
