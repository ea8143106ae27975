/* filter.h - what the files of filters, tests and methods share. */
#pragma once
#include "chat/value.h"

extern const struct fn_row filters_text[], filters_list[], filters_pick[], filters_number[];
extern const struct fn_row tests_all[], globals_all[];
extern const struct fn_row methods_str[], methods_str_is[], methods_dict[], methods_list[],
    methods_cycler[];

/* ---- text_ops.c: string operations of both filters and methods */
enum pad { PAD_LEFT, PAD_RIGHT, PAD_CENTER }; /* where the text goes */
int text_pad(struct run *r, struct val s, int64_t width, uint32_t fill, enum pad how,
             struct val *out);
int text_strip(struct run *r, struct val s, struct val chars, bool left, bool right,
               struct val *out);
int text_replace(struct run *r, struct val s, struct val from, struct val to, int64_t count,
                 struct val *out);
/* The line at `at`: its end and where the next begins; false at the end of the text. */
bool text_line(const struct str *s, size_t at, size_t *end, size_t *next);
int text_rfind(struct run *r, const char *s, size_t n, const struct str *needle, size_t *out);
int text_split(struct run *r, struct val s, struct val sep, int64_t most, bool from_right,
               struct val *out);
