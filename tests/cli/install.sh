#!/bin/sh
# make install into a staging directory: the files that a packager and a C program that links the library need.
. "$(dirname "$0")/lib.inc"
root=$work/root
unset MAKEFLAGS MFLAGS MAKELEVEL MODE
last="make install DESTDIR=... PREFIX=/usr"
make --no-print-directory install DESTDIR="$root" PREFIX=/usr >"$work/out" 2>"$work/err"
rc=$?
check "make install" status 0
for f in bin/kvik lib/libkvik.so lib/libkvik.so.0 lib/libkvik.a include/kvik.h include/kvik_compat.h include/kvik_loop.h include/kvik_shared.h include/kvik_speech.h lib/pkgconfig/kvik.pc share/man/man1/kvik.1 \
    share/bash-completion/completions/kvik share/zsh/site-functions/_kvik; do
    check "installs $f" test -e "$root/usr/$f"
done
check "the installed command runs" sh -c "'$root/usr/bin/kvik' --version >/dev/null"
for f in bin/kvik lib/libkvik.so; do
    check "$f has no debug symbols" sh -c "! objdump -h '$root/usr/$f' | grep -q debug_info"
    check "$f has no symbol table" sh -c "! objdump -h '$root/usr/$f' | grep -q '\.symtab' && nm '$root/usr/$f' 2>&1 | grep -q 'no symbols'"
done
# What the linker and the compiler do against a memory error.
for f in bin/kvik lib/libkvik.so; do
    readelf -hW "$root/usr/$f" >"$work/out" 2>&1
    check "$f is loaded at an address of its own" out_has 'Type: *DYN'
    readelf -lW "$root/usr/$f" >"$work/out" 2>&1
    check "$f: relocations are read-only" out_has GNU_RELRO
    check "$f: the stack cannot be executed" out_has 'GNU_STACK .* RW  '
    check "$f: no segment is writable and executable" sh -c "grep -q ' LOAD ' '$work/out' && ! grep -q ' LOAD .* RWE ' '$work/out'"
    readelf -dW "$root/usr/$f" >"$work/out" 2>&1
    check "$f: symbols are bound when it is loaded" out_has 'Flags: NOW'
    nm -D --undefined-only "$root/usr/$f" >"$work/out" 2>&1
    check "$f: calls of the C library check their sizes" out_has '_chk@'
    check "$f: returns check the stack" out_has '__stack_chk_fail'
done
check "bin/kvik is a position-independent executable" sh -c "readelf -dW '$root/usr/bin/kvik' | grep -q ' PIE'"
readelf -SW "$root/usr/lib/libkvik.a" >"$work/out" 2>&1
check "libkvik.a asks for no executable stack" out_has 'note.GNU-stack *PROGBITS *0* [0-9a-f]* 000000 00      0 '
if [ "$(uname -m)" = x86_64 ]; then # start files of some systems lack the note, and then the linker drops it
    check "libkvik.a is compiled for control-flow enforcement" sh -c "readelf -nW '$root/usr/lib/libkvik.a' | grep -q 'IBT, SHSTK'"
    check "lib/libkvik.so marks the targets of indirect calls" sh -c "objdump -d '$root/usr/lib/libkvik.so' | grep -q endbr64"
fi
check "what is built keeps them" sh -c "objdump -h libkvik.so | grep -q debug_info"
make --no-print-directory install DESTDIR="$work/plain" PREFIX=/usr STRIP=true >"$work/out" 2>"$work/err"
rc=$?
check "make install STRIP=true" status 0
check "keeps debug symbols" sh -c "objdump -h '$work/plain/usr/lib/libkvik.so' | grep -q debug_info"
check "the completion of bash is that of the command" sh -c "./kvik completion bash | cmp -s - '$root/usr/share/bash-completion/completions/kvik'"
check "the completion of zsh is that of the command" sh -c "./kvik completion zsh | cmp -s - '$root/usr/share/zsh/site-functions/_kvik'"
check "demo builds the shared library, which the programs of the README need" sh -c \
    "make -n MODE=release -W src/api/libkvik.map demo | grep -q 'ln -f .*libkvik.so'"
check "soname" sh -c "objdump -p '$root/usr/lib/libkvik.so' | grep -q 'SONAME *libkvik.so.0$'"
make --no-print-directory -n install DESTDIR="$work/multi" PREFIX=/usr LIBDIR=/usr/lib/some-arch >"$work/out" 2>"$work/err"
check "LIBDIR says where libraries go" sh -c "grep -q '$work/multi/usr/lib/some-arch/libkvik.so' '$work/out' && ! grep -q '$work/multi/usr/lib/lib' '$work/out'"
check "and kvik.pc tells it" grep -qF 's|@LIBDIR@|${prefix}/lib/some-arch|' "$work/out"
check "kvik.pc has no placeholder and no staging path" sh -c "! grep -q '@\|$work' '$root/usr/lib/pkgconfig/kvik.pc'"

cat >"$work/use.c" <<'C'
#include <kvik_compat.h>
#include <stdio.h>
int main(void)
{
    kvik_model *m;
    puts(kvik_version());
    return kvik_model_open("/nonexistent", &m) == 0 || kvik_last_error()[0] == 0;
}
C
export PKG_CONFIG_SYSROOT_DIR="$root"
export PKG_CONFIG_LIBDIR="$root/usr/lib/pkgconfig:$(pkg-config --variable pc_path pkg-config)"
flags=$(pkg-config --cflags --libs kvik | sed "s|$root$root|$root|g")
# shellcheck disable=SC2086
cc -o "$work/use" "$work/use.c" $flags 2>"$work/err"
rc=$?
check "a program links through pkg-config" status 0
check "it runs on the shared library" sh -c "LD_LIBRARY_PATH='$root/usr/lib' '$work/use' >/dev/null"
# A prefix of one's own, as README.md says.
HOME=$work make --no-print-directory install PREFIX='~/own' >"$work/out" 2>"$work/err"
rc=$?
check "make install PREFIX=... for one user" status 0
# shellcheck disable=SC2046
cc -o "$work/own-use" "$work/use.c" $(env -u PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR="$PKG_CONFIG_LIBDIR" PKG_CONFIG_PATH="$work/own/lib/pkgconfig" \
    pkg-config --cflags --libs kvik) -Wl,-rpath,"$work/own/lib" 2>"$work/err"
rc=$?
check "a program links with a prefix of one's own" status 0
check "it finds the library there" sh -c "ldd '$work/own-use' | grep -q '$work/own/lib' && '$work/own-use' >/dev/null"
own() { env -u PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR="$PKG_CONFIG_LIBDIR" PKG_CONFIG_PATH="$work/own/lib/pkgconfig" pkg-config "$@" kvik; }
# The line of README.md for a program that has kvik inside.
# shellcheck disable=SC2046
cc -o "$work/inside" "$work/use.c" $(own --cflags) -Wl,--as-needed $(own --variable=libdir)/libkvik.a $(own --static --libs) 2>"$work/err"
rc=$?
check "a program with kvik inside links through pkg-config --static" status 0
check "it needs no shared library of kvik" sh -c "! ldd '$work/inside' | grep -q libkvik && '$work/inside' >/dev/null"
check "README.md has that line" grep -qF -e '-Wl,--as-needed $(pkg-config --variable=libdir kvik)/libkvik.a $(pkg-config --static --libs kvik)' README.md
private=$(sed -n 's/^Libs.private: *//p' "$root/usr/lib/pkgconfig/kvik.pc")
requires=$(sed -n 's/^Requires.private: *//p' "$root/usr/lib/pkgconfig/kvik.pc")
unset PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR
# shellcheck disable=SC2046,SC2086
cc -o "$work/static" -I"$root/usr/include" "$work/use.c" "$root/usr/lib/libkvik.a" \
    $(pkg-config --libs $requires) $private 2>"$work/err"
rc=$?
check "a program links the static library" status 0
check "it runs without the shared library" sh -c "'$work/static' >/dev/null"

if command -v mandoc >/dev/null 2>&1; then
    check "the man page has no errors" sh -c "mandoc -T lint -W error man/kvik.1 >'$work/err' 2>&1"
elif command -v man >/dev/null 2>&1 && man --warnings -l man/kvik.1 >"$work/out" 2>"$work/err"; then
    check "the man page has no warnings" err_empty
else
    skip "the man page is not checked: neither mandoc nor man is installed"
fi

# The library's pages: one for each section and each function of the header, without warnings.
pages=$root/usr/share/man/man3
missing=$(grep -v '^#' src/api/exports.txt | while read -r f; do [ -s "$pages/$f.3" ] || echo "$f"; done)
check "every public function has a manual page" same "$missing" ""
check "a function's page is in the page of its section" sh -c "
    for f in '$pages'/*.3; do
        to=\$(sed -n 's|^\.so man3/||p' \"\$f\")
        [ -z \"\$to\" ] || grep -q \"^\.\(Fo\|It Vt\|It Fn\) \$(basename \"\$f\" .3)\$\" '$pages'/\"\$to\" || exit 1
    done"
check "kvik(3) has the story of the header" grep -q 'SEQUENCES' "$pages/kvik.3"
basics=$(grep -c '^\.Fo' "$pages/kvik_basics.3")
check "the header begins with the twenty functions that most programs need" same "$basics" 20
whole=$(grep -L '^\.so ' "$pages"/*.3) # the others point to these
if command -v mandoc >/dev/null 2>&1; then
    # shellcheck disable=SC2086 # a list of files
    mandoc -T lint -W warning $whole >"$work/err" 2>&1
    check "the library's pages have no warnings of mandoc" err_empty
fi
if command -v man >/dev/null 2>&1; then
    for f in $whole; do man --warnings -l "$f" 2>&1 >/dev/null; done >"$work/err"
    check "the library's pages have no warnings of groff" err_empty
    man -M "$root/usr/share/man" 3 kvik_generate >"$work/out" 2>"$work/err"
    check "man 3 kvik_generate shows the page of its section" out_has "kvik_generate_stream"
elif ! command -v mandoc >/dev/null 2>&1; then
    skip "the library's pages are not checked: neither mandoc nor man is installed"
fi
scripts/make-man.py include/*.h "$work/again"
check "the pages are the same each time" diff -r "$work/again" "$pages"

for command in generate chat inspect tokenize render models completion; do
    check "the man page has $command" grep -q "$command" man/kvik.1
done
finish
