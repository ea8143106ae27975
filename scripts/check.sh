#!/bin/sh
# check.sh - checks the house rules that a script can check, in about a second (make check).
# Every failure names the rule and the reason. Exit 0 if all rules hold, 1 otherwise.
#
# The comment "check-ok: reason" excuses a line of C from the banned calls.
set -u
cd "$(dirname "$0")/.."
export LC_ALL=C
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# fail RULE WHY: prints the findings on stdin under their rule, if there are any.
fail() {
    cat >"$tmp/found"
    [ -s "$tmp/found" ] || return 0
    echo "$1" >>"$tmp/broken" # a file, because fail runs in a subshell at the end of a pipeline
    printf 'check: %s\n  why: %s\n' "$1" "$2"
    sed 's/^/    /' "$tmp/found"
}

sources=$(find src include -name '*.[ch]' 2>/dev/null | sort)
tracked() { # lists every file of the repository, also in an unpacked archive without .git
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files
    else
        find . -type f ! -path './build/*' ! -path './packages/*' | sed 's|^\./||'
    fi
}

# --- Floors ---------------------------------------------------------------------------------
# The modules that a module may include besides itself. Adding a name here is an architecture decision.
awk '
BEGIN {
    may["base"] = " "
    may["fmt"] = " base "
    may["tok"] = " base fmt "
    may["schema"] = " base "
    may["audio"] = " base "
    may["shared"] = " base "
    may["dev"] = " base "
    may["kv"] = " base dev "
    may["model"] = " base fmt dev kv "
    may["chat"] = " base tok "
    may["generate"] = " base tok schema model kv dev chat kvik.h kvik_compat.h kvik_loop.h " # structs of options and hooks are the public ones
    may["session"] = " base shared kv generate kvik.h kvik_shared.h "
    may["compat"] = " base fmt kv model generate kvik.h kvik_compat.h kvik_loop.h "
    may["speech"] = " base tok audio kv model generate kvik.h kvik_speech.h "
    may["api"] = " base fmt tok dev kv model chat generate session compat kvik.h kvik_compat.h kvik_loop.h kvik_shared.h kvik_speech.h "
    may["serve"] = " base kvik.h kvik_loop.h kvik_shared.h kvik_speech.h "
    may["hub"] = " base "
    may["cli"] = " base hub serve kvik.h kvik_compat.h kvik_loop.h kvik_shared.h kvik_speech.h "
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split(FILENAME, part, "/")
    if (part[1] != "src") next
    from = part[2]
    split($0, q, "\"")
    n = split(q[2], to, "/")
    target = n > 1 ? to[1] : (to[1] ~ /^kvik(_compat|_loop|_shared|_speech)?[.]h$/ ? to[1] : from)
    if (to[1] == "..") target = q[2]
    if (!(from in may)) { if (!told[from]++) print FILENAME ": module " from " is on no floor"; next }
    if (target != from && index(may[from], " " target " ") == 0)
        print FILENAME ":" FNR ": " from " may not include \"" q[2] "\" (allowed:" may[from] ")"
}' $sources | fail "floors: a file includes only lower floors" \
    "an upward include ties two modules together, and neither can be tested or replaced alone"

awk '
FILENAME ~ /ARCHITECTURE/ { if (/^[0-9]  [a-z]+ /) floor[$2] = $1; next }
FNR == 1 && match($0, / - floor [0-9]+/) {
    split(FILENAME, part, "/")
    named = substr($0, RSTART + 9, RLENGTH - 9)
    if (!(part[2] in floor) || named != floor[part[2]]) print FILENAME ": floor " named
}' docs/ARCHITECTURE.md $sources | fail "floors: a header names the floor that docs/ARCHITECTURE.md gives its room" \
    "the map and the code would tell a reader different things"

grep -nE '\b((err_prefix|err_set|buf_printf|ERR)\([^,"()]*,|(say_line|say_failed|say_usage)\() *[a-z_][][a-zA-Z0-9_.>-]*\)' \
    /dev/null $sources | grep -vE 'const char|#define' |
    fail "format: a text that is no literal is printed with %s" \
        "the flags of distributions make it an error (-Werror=format-security), and a % in it would be read"

grep -rhoE '\.incbin [^ ]*"[^"]*"' src | grep -oE '[a-z][a-zA-Z0-9_.-]*/[a-zA-Z0-9_./-]*' | grep -v '^src/' | while read -r f; do
    grep -qF "$f" MANIFEST.in || echo "$f"
done | fail "manifest: what the assembler reads is in the source distribution" "it would not build"

# --- Size and names -------------------------------------------------------------------------
for f in $sources; do
    case $f in
    src/dev/cpu/*) wall=1200 ;;
    include/kvik.h) wall=950 ;; # what most programs include, with a comment above each declaration
    *) wall=800 ;;
    esac
    n=$(wc -l <"$f")
    [ "$n" -le $wall ] || echo "$f: $n lines, wall $wall"
done | fail "length: a file is one noun" "a file past the wall holds two things; split it by noun"

find src -name '*.[ch]' | sed 's|.*/||' | sort | uniq -d |
    fail "names: file names are unique in src" "a name in a stack trace must be enough to find the file"

grep -nE '^[[:space:]]*typedef.*[^[:alnum:]_][[:alnum:]_]+_t;|^[[:space:]]*\}[[:space:]]*[[:alnum:]_]+_t;' \
    /dev/null $sources |
    fail "names: no typedef ends in _t" "the suffix is reserved by POSIX; structs are written struct x"

for f in $sources; do
    head -n 1 "$f" | grep -q '^/\*' || echo "$f"
done | fail "essay: every file opens with a comment that says what it owns" \
    "the reader must know what a file is for before its first line of code"

awk 'END { if (NR > 150) print FILENAME ": " NR " lines" }' Makefile |
    fail "length: the Makefile has at most 150 lines" "it must be readable in one sitting"

for t in $(sed -n 's/^\.PHONY://p' Makefile scripts/*.mk); do
    case $t in libs | objects) continue ;; esac
    grep -q "^# $t: " scripts/*.mk || echo "scripts/targets.mk: $t"
done | fail "targets: every target has its line for make help" "a target that nobody finds is not used"

# --- Calls ----------------------------------------------------------------------------------
# Comments and strings are blanked first, so that prose may name banned calls.
awk '
function ban(re, why) {
    if (code ~ ("(^|[^A-Za-z0-9_.>])(" re ")[ \t]*\\(")) print FILENAME ":" FNR ": " why ": " text
}
FNR == 1 { inside = 0 }
{
    text = $0; sub(/^[ \t]+/, "", text)
    code = ""; rest = $0
    gsub(/\\["\\]/, "", rest)
    gsub(/\047"\047/, "", rest)
    while (rest != "") {
        if (inside) {
            k = index(rest, "*/")
            if (!k) { rest = ""; break }
            rest = substr(rest, k + 2); inside = 0
            continue
        }
        if (!match(rest, /\/\*|\/\/|"/)) { code = code rest; break }
        code = code substr(rest, 1, RSTART - 1) " "
        c = substr(rest, RSTART, 2); rest = substr(rest, RSTART + (c ~ /^"/ ? 1 : 2))
        if (c == "/*") inside = 1
        else if (c == "//") break
        else { k = index(rest, "\""); rest = k ? substr(rest, k + 1) : "" }
    }
    if ($0 ~ /check-ok: /) next
    if (FILENAME != "src/base/mem.c")
        ban("malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|free|strdup|strndup|asprintf|vasprintf|alloca",
            "memory goes through mem_*")
    if (FILENAME !~ /^src\/cli\//)
        ban("printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|exit|_exit|_Exit|abort|raise|setlocale",
            "the library never prints or exits")
    ban("strcpy|strcat|sprintf|vsprintf|gets|strtok|strncpy|strncat", "unbounded or treacherous copy")
    ban("atoi|atol|atoll|atof|sscanf|scanf", "a parser that cannot report an error")
    ban("system|popen|rand|srand", "process-wide state or a shell")
    if (FILENAME != "src/base/descriptor.c")
        ban("open|openat|creat|fopen|freopen|opendir|mkstemp|mkostemp|mkdtemp|tmpfile|memfd_create|pipe|pipe2|dup|dup2",
            "fd_* of base/descriptor.h opens files, above descriptor 2")
}' $(find src -name '*.[ch]' | sort) | fail "calls: banned in src" \
    "allocation must be countable and fail in tests, a library has no terminal, and input is untrusted"

# --- What ships -----------------------------------------------------------------------------
if [ -f libkvik.so ] && command -v nm >/dev/null 2>&1; then
    nm -D --defined-only libkvik.so | awk '$2 ~ /[A-Z]/ && $2 != "A" { sub(/@.*/, "", $3); print $3 }' |
        sort -u >"$tmp/exports"
    grep -v '^kvik_' "$tmp/exports" | fail "exports: every symbol of libkvik.so starts with kvik_" \
        "a library shares one name space with its host program"
    if [ -f src/api/exports.txt ]; then
        sort -u src/api/exports.txt | grep -v '^#' | diff - "$tmp/exports" |
            sed -n 's/^< /listed, not exported: /p; s/^> /exported, not listed: /p' |
            fail "exports: libkvik.so exports what src/api/exports.txt lists" \
                "the binary interface is a reviewed file; change both in one commit"
    fi
else
    echo "check: libkvik.so is not built, exports not compared (run make first)" >&2
fi

if [ -d debian ]; then
    grep -v '^#' src/api/exports.txt | sort >"$tmp/listed"
    sed -n 's/^ \(kvik_[a-z0-9_]*\)@KVIK_0 .*/\1/p' debian/libkvik0.symbols | sort | diff "$tmp/listed" - |
        sed -n 's/^< /debian\/libkvik0.symbols lacks it: /p; s/^> /not exported: /p' |
        fail "packages: debian/libkvik0.symbols has what src/api/exports.txt lists" \
            "a program that is linked with a new function must ask for the version that brought it; add \" NAME@KVIK_0 VERSION\""
    version=$(sed -n 's/^#define KVIK_VERSION "\(.*\)"/\1/p' include/kvik.h)
    grep -q "^kvik ($version[)~+]" debian/changelog || echo "debian/changelog begins with $(head -n 1 debian/changelog), include/kvik.h has $version" |
        fail "packages: debian/changelog begins with the version of the headers" "the package would be named for another version"
    # What a build may find is found in Debian's clean room, too.
    sed -n 's/^    need \(lib[a-z0-9.-]*-dev\|nettle-dev\|zlib1g-dev\) .*/\1/p' bootstrap | while read -r p; do
        [ "$p" = libc6-dev ] || grep -q "^ *\(Build-Depends: \)*$p\( .*\)*,*$" debian/control || echo "$p"
    done | fail "packages: Build-Depends of debian/control has the libraries of bootstrap" \
        "the package would be built without what the library does"
fi

# The brackets keep this line from finding itself.
tracked | grep -vE '^tests/(golden|fixtures)/.*\.(json|jsonl|safetensors)$|^tests/fuzz/corpus/' |
    tr '\n' '\0' | xargs -0 grep -InE '(^|[^[:alnum:]_.~$}])/([w]ork|[h]ome|[r]oot)/|/[t]mp/wt' /dev/null |
    cut -c1-160 |
    fail "paths: no path of one machine in a tracked file" "it means nothing on another machine"

tracked | grep '\.sh$\|^bootstrap$' | while read -r f; do
    [ ! -f "$f" ] || [ -x "$f" ] || echo "$f"
done | fail "scripts: executable" "the documented command must work as typed"

if [ -f include/kvik.h ] && command -v cc >/dev/null 2>&1; then
    cxx=$(echo '' | cc -fsyntax-only -x c++ - 2>/dev/null && echo "-x c++ -std=c++11")
    for std in "-x c -std=c99" "-x c -std=c11" ${cxx:+"$cxx"}; do
        for h in include/*.h; do
            echo "#include \"${h#include/}\"" | cc -fsyntax-only -Wall -Wextra -pedantic -Werror -Iinclude $std - 2>&1
        done
    done | head -n 12 | fail "header: each compiles alone as C99, C11 and C++11, pedantic" \
        "users include it first, with their own flags"
fi

awk 'length > 120 { print FILENAME ":" FNR ": " length " columns" }' include/*.h |
    fail "header: lines have at most 120 columns" "users read it in their editors"

# On other machines no test compiles the files for 64-bit ARM; make test-arm takes many minutes.
cross=$(command -v aarch64-linux-gnu-gcc)
if [ -n "$cross" ] && echo '#include <math.h>' | "$cross" -fsyntax-only -x c - 2>/dev/null; then
    for isa in neon: neondot:-march=armv8.2-a+dotprod neoni8mm:-march=armv8.2-a+dotprod+i8mm; do
        "$cross" -fsyntax-only -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -Wall -Wextra -Wshadow -Werror ${isa#*:} \
            src/dev/cpu/*_"${isa%%:*}".c 2>&1
    done | head -n 12 | fail "ARM: the files for 64-bit ARM compile" "the build on this machine leaves them out"
fi

# Programs that use the library learn of a break from the changelog.
if command -v python3 >/dev/null 2>&1; then
    scripts/check-api.py 2>&1 |
        fail "interface: each break since the last release is a line \"- API:\" of CHANGELOG.md that names it" \
            "a person who updates looks there, and under the version"
fi

# The table of the package's floors is in the script.
if command -v python3 >/dev/null 2>&1; then
    scripts/check-python-floors.py python/kvik 2>&1 |
        fail "python floors: a file of the package imports only files below it, at its top" \
            "files in a circle cannot be read, tested or replaced alone, and an import in a function hides one"
fi

# The reference of the Python package is written from its docstrings (make python-reference).
if command -v python3 >/dev/null 2>&1; then
    scripts/make-python-reference.py --check python/kvik 2>&1 |
        fail "docstrings: every public class, function and method of the package has one" \
            "the reference and help() have nothing else"
fi

# clang-format splits a declaration rather than let a comment behind it pass the margin, so such a comment stands above.
awk '
FNR == 1 { before = "" }
before ~ /^[ \t]*[A-Za-z_][A-Za-z_0-9 ]*\**$/ && before !~ /^[ \t]*(return|else|do)$/ && /;[ \t]*\/\*/ &&
    /^[ \t]+\**[A-Za-z_]/ { print FILENAME ":" FNR - 1 ": " $0 }
{ before = $0 }' $(find src include tests bench examples -name '*.[ch]' | sort) | cut -c1-120 |
    fail "layout: no declaration is split by the comment behind it" \
        "put the comment above; the type and the name of one thing belong on one line"

# --- Layout ---------------------------------------------------------------------------------
# The style file is for clang-format 14. Other versions differ in details, so their findings do not count.
formatter=$(command -v clang-format-14 || command -v clang-format)
if [ -n "$formatter" ]; then
    version=$($formatter --version | sed 's/.*version \([0-9]*\).*/\1/')
    files="$sources $(find tests bench examples -name '*.[ch]' 2>/dev/null | sort)"
    echo $files | tr ' ' '\n' | xargs $formatter --dry-run --Wno-error=unknown 2>&1 |
        sed -n 's/^\([^: ]*:[0-9]*\):[0-9]*: warning: code should be clang-formatted.*/\1/p' |
        cut -d: -f1 | sort | uniq -c | sed 's/ *\([0-9]*\) \(.*\)/\2: \1 places; clang-format -i \2/' >"$tmp/layout"
    if [ "$version" = 14 ]; then
        fail "layout: clang-format 14 changes nothing" "diffs must show changes, not spacing" <"$tmp/layout"
    elif [ -s "$tmp/layout" ]; then
        echo "check: clang-format $version differs in $(wc -l <"$tmp/layout") files (14 decides; not counted)" >&2
    fi
fi

# --- Merges ---------------------------------------------------------------------------------
tracked | grep -v '^tests/fuzz/corpus/' | xargs grep -nIE '^(<{7}|>{7}) ' 2>/dev/null |
    fail "merges: no file has the marks of a merge" "such a file was committed before its conflict was settled"

# --- Traps ----------------------------------------------------------------------------------
# Files that differ from the newest commit before this work: all that is not on the main branch, or the last commit.
if git rev-parse --git-dir >/dev/null 2>&1 && command -v clang-tidy >/dev/null 2>&1; then
    base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null)
    [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse -q --verify HEAD~1)
    changed=$({ git diff --name-only "${base:-HEAD}"; git ls-files --others --exclude-standard; } | grep '^src/.*\.c$')
    [ -z "$changed" ] || scripts/tidy.sh $changed | grep -E ': (warning|error): ' | sort -u |
        fail "traps: clang-tidy finds nothing in changed files" "each check of .clang-tidy is a defect or a trap"
fi
if command -v ruff >/dev/null 2>&1; then
    ruff check --quiet --output-format concise . 2>&1 |
        fail "traps: ruff finds nothing in Python" "unused names and late bindings hide defects"
fi

if [ -s "$tmp/broken" ]; then
    echo "check: $(wc -l <"$tmp/broken") rules broken"
    exit 1
fi
echo "check: all rules hold"
