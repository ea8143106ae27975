/* builtin.h - the functions behind the table of builtins (builtin.c), and string operations that they share.
 * Where several rows of the table share a function, the function reads the row's `how`. */
#pragma once
#include "chat/value.h"

typedef int builtin_fn(struct builtin_call *c, struct val *out);

/* ---- filter_list.c */
builtin_fn f_first, f_last, f_length, f_list, f_reverse, f_sort, f_unique, f_extreme, f_sum,
    f_dictsort, f_items, f_map, f_pick, f_default;
enum pick_how { PICK_ATTR = 1, PICK_FAILING = 2 }; /* f_pick: select, selectattr, reject, ... */

/* ---- filter_text.c */
builtin_fn f_string, f_case, f_strip, f_replace, f_join, f_indent, f_center, f_truncate,
    f_wordcount, f_percent;
enum text_how { TEXT_PLAIN, TEXT_SAFE, TEXT_ESCAPED }; /* f_string */
enum strip_how { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };

/* ---- method.c: methods of strings and dictionaries */
builtin_fn m_find, m_affix, m_remove_affix, m_split, m_splitlines, m_class, m_format, m_get, m_view;

/* ---- number.c */
builtin_fn f_abs, f_int, f_float, f_round;

/* ---- globals.c */
builtin_fn g_range, g_dict, g_raise, g_strftime;

/* ---- text_ops.c */
int text_strip(struct render_state *r, struct val s, struct val chars, enum strip_how how,
               struct val *out);
int text_replace(struct render_state *r, struct val s, struct val from, struct val to,
                 int64_t count, struct val *out);
/* Finds the line at byte `at`: its end, and where the next one begins; false at the end of s. */
bool text_line(const struct str *s, size_t at, size_t *end, size_t *next);
int text_find(struct render_state *r, const char *s, size_t n, const struct str *needle, bool back,
              size_t *out); /* SIZE_MAX: absent */
int text_split(struct render_state *r, struct val s, struct val sep, int64_t most, bool back,
               struct val *out);
