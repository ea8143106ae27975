#!/bin/bash
# together.sh DIR TEST... - joins the objects DIR/TEST.o of unit tests, each a program of its own, into one object,
# DIR/together.o, whose main is that of the test by whose name the program is called. The gate links 140 tests once.
set -eu
dir=$1
shift
mkdir -p "$dir/together"
{
    printf '#include <string.h>\n'
    printf 'int %s_main(int argc, char **argv);\n' "$@"
    printf 'int main(int argc, char **argv)\n{\n    const char *slash = strrchr(argv[0], 47), *name = slash ? slash + 1 : argv[0];\n'
    for name; do printf '    if (strcmp(name, "%s") == 0) return %s_main(argc, argv);\n' "$name" "$name"; done
    printf '    return 99;\n}\n'
} >"$dir/together/main.c"
for name; do # all names of a test but its main become its own
    ${OBJCOPY:-objcopy} --redefine-sym main="${name}_main" --keep-global-symbol="${name}_main" "$dir/$name.o" "$dir/together/$name.o"
done
${CC:-cc} -fPIC -c -o "$dir/together/main.o" "$dir/together/main.c"
names=("${@/%/.o}")
${LD:-ld} -r -o "$dir/together.o" "$dir/together/main.o" "${names[@]/#/$dir/together/}"
