/* transcript_file.h - the files that kvik transcribe writes, one for each recording. */
#pragma once
#include "cli/transcript_print.h"

/* Returns the path of a recording's transcript (mem_free): talk.srt for talk.mp3, beside it or in `dir`.  NULL: no memory. */
char *transcript_file_name(const char *recording, const char *dir, enum transcript_format format);
/* Checks the paths of n transcripts before anything is computed: no two recordings may have the same, no file may
 * be overwritten that must stay, and every directory must be writable.  Prints what is wrong.  Returns an exit
 * status. */
int transcript_files_check(char *const *path, const char *const *recording, size_t n,
                           bool overwrite);
