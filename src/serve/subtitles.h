/* subtitles.h - segments of a recording as subtitles, and as JSON as OpenAI shows them. */
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "kvik_speech.h"

/* Adds a segment.  SRT numbers segments and has commas in its times; in WebVTT tags are escaped. */
int subtitle_add(struct buf *b, const kvik_segment *s, unsigned number, bool vtt);
json_t *segment_json(const kvik_segment *s, size_t index);
json_t *word_json(const kvik_word *w);
