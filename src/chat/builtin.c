/* builtin.c - finding builtins by name, and the methods of each type.  A method the immutable
 * sandbox refuses (it would change its object) is reported as unsafe, not as absent. */
#include "chat/filter.h"

#include <string.h>

static const struct fn_row *row_find(const struct fn_row *rows, const char *s, size_t n)
{
    for (; rows->name; rows++)
        if (strlen(rows->name) == n && memcmp(rows->name, s, n) == 0) return rows;
    return NULL;
}

const struct fn_row *filter_find(const char *s, size_t n)
{
    const struct fn_row *const all[] = {filters_text, filters_list, filters_pick, filters_number};
    for (size_t i = 0; i < countof(all); i++) {
        const struct fn_row *row = row_find(all[i], s, n);
        if (row) return row;
    }
    return NULL;
}

const struct fn_row *test_find(const char *s, size_t n)
{
    return row_find(tests_all, s, n);
}

const struct fn_row *global_find(const char *s, size_t n)
{
    return row_find(globals_all, s, n);
}

static bool listed(const char *const *names, const char *s, size_t n)
{
    for (; *names; names++)
        if (strlen(*names) == n && memcmp(*names, s, n) == 0) return true;
    return false;
}

const struct fn_row *method_find(struct val self, const char *s, size_t n, bool *unsafe)
{
    static const char *const list_changes[] = {"append", "clear",   "extend", "insert", "pop",
                                               "remove", "reverse", "sort",   NULL};
    static const char *const dict_changes[] = {"clear",      "pop",    "popitem",
                                               "setdefault", "update", NULL};
    if (self.t == V_UNDEF) return NULL;
    if (n > 4 && memcmp(s, "__", 2) == 0 && memcmp(s + n - 2, "__", 2) == 0) {
        static const char *const inner[] = {"__class__",   "__init__",       "__dict__", "__doc__",
                                            "__globals__", "__subclasses__", "__mro__",  NULL};
        *unsafe = listed(inner, s, n);
        return NULL;
    }
    const struct fn_row *row = NULL;
    if (self.t == V_STR) {
        row = row_find(methods_str, s, n);
        return row ? row : row_find(methods_str_is, s, n);
    }
    if (self.t == V_DICT) {
        *unsafe = listed(dict_changes, s, n);
        return row_find(methods_dict, s, n);
    }
    if (val_is_list(self)) *unsafe = listed(list_changes, s, n);
    if (val_is_list(self) || val_is_tuple(self) || self.t == V_RANGE)
        return row_find(methods_list, s, n);
    if (self.t == V_CYCLER) {
        return row_find(methods_cycler, s, n);
    }
    return NULL;
}
