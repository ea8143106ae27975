/* transcript_file.c - the names of transcripts.  A transcript is named like its recording, with the format as its
 * ending, beside the recording or in the directory of --output-dir.  An existing file is not overwritten without
 * --overwrite, because it may be somebody's work. */
#include "cli/transcript_file.h"
#include "base/file.h"
#include "cli/cli.h"

#include <string.h>

char *transcript_file_name(const char *recording, const char *dir, enum transcript_format format)
{
    static const char *const ending[] = {".txt", ".json", ".srt", ".vtt"};
    const char *slash = strrchr(recording, '/'), *name = slash ? slash + 1 : recording;
    const char *point = strrchr(name, '.');
    size_t stem = point && point != name ? (size_t)(point - name) : strlen(name);
    size_t place = dir ? strlen(dir) : (size_t)(name - recording);
    struct buf b;
    buf_init(&b, (size_t)1 << 20);
    int e = buf_append(&b, dir ? dir : recording, place);
    if (e >= 0 && dir && place && dir[place - 1] != '/') e = buf_putc(&b, '/');
    if (e >= 0) e = buf_append(&b, name, stem);
    if (e >= 0) e = buf_puts(&b, ending[format]);
    char *path = e < 0 ? NULL : buf_take(&b);
    buf_done(&b);
    return path;
}

int transcript_files_check(char *const *path, const char *const *recording, size_t n,
                           bool overwrite)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            if (!strcmp(path[i], path[k]))
                return say_usage(
                    "%s and %s would both write %s; give them different names or run the command for each",
                    recording[k], recording[i], path[i]);
        if (!overwrite && path_exists(path[i]))
            return say_failed(
                "%s is there already; --overwrite replaces it, --output-dir DIR writes elsewhere",
                path[i]);
        int e = file_writable(path[i]);
        if (e < 0) return say_error(e);
    }
    return 0;
}
