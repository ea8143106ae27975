/* inspect_session.c - kvik inspect SESSION: reads and checks every live byte of the file, then prints what it holds. */
#include "base/file.h"
#include "cli/inspect.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool inspect_is_session(const char *path)
{
    char magic[8];
    struct stat st;
    int fd = file_open(path, &st);
    if (fd < 0) return false;
    bool is = pread(fd, magic, sizeof magic, 0) == sizeof magic && !memcmp(magic, "KVIKSESS", 8);
    close(fd);
    return is;
}

static void put_size(const char *name, long long n)
{
    char size[16];
    printf("  %-20s %s\n", name, bytes_text((uint64_t)n, size));
}

static void put_session(const json_t *o)
{
    json_t *g, *s;
    size_t i;
    char size[16];
    printf("session, format version %lld, %lld save%s, all checksums right%s\n",
           number(o, "version"), number(o, "saves"), number(o, "saves") == 1 ? "" : "s",
           json_is_true(json_object_get(o, "interrupted"))
               ? "; a later save was interrupted and left no trace"
               : "");
    printf("  %-20s %s (%s)\n", "model", text(o, "model"), text(o, "architecture"));
    printf("  %-20s %.16s\n", "fingerprint", text(o, "fingerprint"));
    if (json_object_get(o, "weights"))
        printf("  %-20s %.16s\n", "digest of weights", text(o, "weights"));
    printf("  %-20s %s, rows %s, saved by kvik %s on %s\n", "compute", text(o, "compute"),
           text(o, "rows"), text(o, "kvik"), text(o, "isa"));
    printf("  %-20s %s\n", "cache", text(o, "cache_implementation"));
    json_array_foreach(json_object_get(o, "groups"), i, g)
        printf("  %-20s %s\n", i ? "" : "layers", json_string_value(g) ? json_string_value(g) : "");
    put_size("bytes", number(o, "bytes"));
    put_size("of these in use", number(o, "live_bytes"));
    printf("  %-20s %lld\n", "blocks", number(o, "blocks"));
    if (number(o, "note_bytes")) put_size("note", number(o, "note_bytes"));
    json_array_foreach(json_object_get(o, "sequences"), i, s)
        printf("  %-20s %lld token%s in %lld turn%s, %lld block%s, %s\n", i ? "" : "sequences",
               number(s, "tokens"), number(s, "tokens") == 1 ? "" : "s", number(s, "turns"),
               number(s, "turns") == 1 ? "" : "s", number(s, "blocks"),
               number(s, "blocks") == 1 ? "" : "s", bytes_text((uint64_t)number(s, "bytes"), size));
}

int inspect_session(const char *path, bool json)
{
    char *s;
    json_t *o;
    int e = kvik_session_describe(path, &s);
    if (e < 0) return say_error(e);
    if (json) {
        puts(s);
    } else if ((e = json_parse(s, strlen(s), "session description", &o)) >= 0) {
        put_session(o);
        json_decref(o);
    }
    kvik_free(s);
    return e < 0 ? say_error(e) : 0;
}
