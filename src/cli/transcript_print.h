/* transcript_print.h - the forms in which kvik transcribe prints what was heard. */
#pragma once
#include "kvik.h"

enum transcript_format { TRANSCRIPT_TEXT, TRANSCRIPT_JSON, TRANSCRIPT_SRT, TRANSCRIPT_VTT };
struct transcript_print {
    enum transcript_format format;
    unsigned long number; /* of the last subtitle */
};
/* Returns the format of a name; NULL: text. */
enum transcript_format transcript_format(const char *name);
void transcript_print_begin(struct transcript_print *p);
void transcript_print_segment(struct transcript_print *p, const kvik_segment *s);
/* Prints a transcript as one JSON object; returns an exit status. */
int transcript_print_json(const char *path, const kvik_transcript *t);
