#!/bin/sh
# make links again when a source file disappears, and not without a reason; in a tree of three files with kvik's Makefile.
. "$(dirname "$0")/lib.inc"
mkdir -p "$work/tree/src/base" "$work/tree/src/cli" "$work/tree/src/api" "$work/tree/scripts"
cp Makefile "$work/tree"
cp scripts/targets.mk "$work/tree/scripts"
cd "$work/tree" || exit 99
echo '{ global: *; };' >src/api/libkvik.map
echo 'int stays(void); int stays(void) { return 1; }' >src/base/stays.c
echo 'int leaves(void); int leaves(void) { return 2; }' >src/base/leaves.c
build() { make build/release/kvik.o build/release/libkvik.so >../log 2>&1 || { cat ../log; return 1; }; }
check "a small tree is built" build
check "both files are linked" sh -c "nm build/release/kvik.o | grep -q ' [Tt] leaves' && nm build/release/libkvik.so | grep -q ' [Tt] leaves'"
touch -d '1 minute ago' ../then
touch -r ../then build/release/*.so build/release/*.o build/release/objects build/release/src/*/* src/*/* Makefile
check "a second make succeeds" build
check "nothing is linked again without a reason" sh -c "! [ build/release/libkvik.so -nt ../then ] && ! [ build/release/kvik.o -nt ../then ]"
rm src/base/leaves.c
check "the tree is built without a file that has disappeared" build
check "the file that has disappeared is not linked" sh -c "! nm build/release/kvik.o | grep -q ' [Tt] leaves' && ! nm build/release/libkvik.so | grep -q ' [Tt] leaves'"
check "the other file is linked" sh -c "nm build/release/kvik.o | grep -q ' [Tt] stays' && nm build/release/libkvik.so | grep -q ' [Tt] stays'"
finish
