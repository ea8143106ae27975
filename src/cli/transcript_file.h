/* transcript_file.h - the files that kvik transcribe writes, one for each recording. */
#pragma once
#include "cli/transcript_print.h"

/* Returns the path of a recording's transcript (mem_free): talk.srt for talk.mp3, beside it or in `dir`.  NULL: no memory. */
char *transcript_file_name(const char *recording, const char *dir, enum transcript_format format);
/* Checks the paths of n recordings before anything is computed, and says what is wrong: two recordings have one, a file is
 * there that may not be overwritten, a directory cannot be written.  Returns an exit status. */
int transcript_files_check(char *const *path, const char *const *recording, size_t n,
                           bool overwrite);
