/* transcript_print.h - the formats in which kvik transcribe prints. */
#pragma once
#include "base/buf.h"
#include "kvik.h"
#include "kvik_speech.h"

enum transcript_format { TRANSCRIPT_TEXT, TRANSCRIPT_JSON, TRANSCRIPT_SRT, TRANSCRIPT_VTT };
struct transcript_print {
    enum transcript_format format;
    /* the text is kept in `out` and written to a file at the end; else it is printed at once */
    bool keeps;
    unsigned long number; /* number of the last subtitle */
    /* number of segments without speech, which texts and subtitles leave out */
    unsigned long silent;
    struct buf out; /* the caller calls buf_done */
    int error;      /* the first failure */
};
/* Finds a format by its name; NULL: text. */
enum transcript_format transcript_format(const char *name);
void transcript_print_begin(struct transcript_print *p);
void transcript_print_segment(struct transcript_print *p, const kvik_segment *s);
/* Prints a transcript as one JSON object. */
void transcript_print_json(struct transcript_print *p, const char *path, const kvik_transcript *t);
