/* cue.c - the parts of subtitles; see cue.h. */
#include "base/cue.h"

#include <math.h>
#include <string.h>

int cue_time(struct buf *b, double seconds, char point)
{
    unsigned long long ms = (unsigned long long)llround(seconds * 1000);
    return buf_printf(b, "%02llu:%02llu:%02llu%c%03llu", ms / 3600000, ms / 60000 % 60,
                      ms / 1000 % 60, point, ms % 1000);
}

int cue_text(struct buf *b, const char *text, size_t n, bool vtt)
{
    int e = 0;
    for (size_t i = 0; e >= 0 && i < n; i++) {
        char c = text[i];
        if (c == '\n' || c == '\r')
            e = buf_putc(b, ' ');
        else if (vtt && c && strchr("<>&", c))
            e = buf_puts(b, c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;");
        else
            e = buf_putc(b, c);
    }
    return e;
}

const char *cue_trim(const char *text, size_t *n)
{
    text += strspn(text, " \t\r\n");
    *n = strlen(text);
    while (*n && strchr(" \t\r\n", text[*n - 1]))
        --*n;
    return text;
}
