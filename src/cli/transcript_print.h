/* transcript_print.h - the forms in which kvik transcribe prints what was heard. */
#pragma once
#include "base/buf.h"
#include "kvik.h"
#include "kvik_speech.h"

enum transcript_format { TRANSCRIPT_TEXT, TRANSCRIPT_JSON, TRANSCRIPT_SRT, TRANSCRIPT_VTT };
struct transcript_print {
    enum transcript_format format;
    bool keeps;           /* for a file: the text stays in `out`; else it leaves at once */
    unsigned long number; /* of the last subtitle */
    unsigned long silent; /* segments without speech, which texts and subtitles leave out */
    struct buf out;       /* the caller's buf_done */
    int error;            /* the first failure */
};
/* Returns the format of a name; NULL: text. */
enum transcript_format transcript_format(const char *name);
void transcript_print_begin(struct transcript_print *p);
void transcript_print_segment(struct transcript_print *p, const kvik_segment *s);
/* Prints a transcript as one JSON object. */
void transcript_print_json(struct transcript_print *p, const char *path, const kvik_transcript *t);
