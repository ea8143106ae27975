/* ids.c - reads lists of numbers on the command line: "1,2,3", also with spaces or in brackets. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLANK " \t\r\n" /* a list from standard input ends with a newline */

int ids_parse(const char *option, const char *text, int32_t **ids, size_t *n)
{
    size_t cap = strlen(text) / 2 + 1, count = 0;
    const char *p = text + strspn(text, "[" BLANK);
    int32_t *v = mem_array(cap, sizeof *v);
    if (!v) return say_error(ERR_NOMEM);
    while (*p && *p != ']') {
        char *end;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX) {
            mem_free(v);
            return say_usage("%s: \"%.40s\" is not a list of numbers such as 1,2,3", option, text);
        }
        v[count++] = (int32_t)id;
        p = end + strspn(end, "," BLANK);
    }
    if (*p == ']') p += 1 + strspn(p + 1, BLANK);
    if (*p || !count) {
        mem_free(v);
        return say_usage("%s: \"%.40s\" is not a list of numbers such as 1,2,3", option, text);
    }
    *ids = v;
    *n = count;
    return 0;
}

void ids_print(const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%s%d", i ? "," : "", ids[i]);
    putchar('\n');
}
