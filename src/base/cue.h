/* cue.h - subtitles: a cue is a text with the times at which it is shown. */
#pragma once
#include "base/buf.h"

/* Appends a time such as 01:02:03.456; SRT has a comma for the point. */
int cue_time(struct buf *b, double seconds, char point);
/* Appends a text.  A line end would end the cue early, so it becomes a space.  WebVTT reads tags: there they are escaped. */
int cue_text(struct buf *b, const char *text, size_t n, bool vtt);
/* Returns the text without the spaces and line ends around it, and its length. */
const char *cue_trim(const char *text, size_t *n);
