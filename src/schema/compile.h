/* compile.h - a compilation under way.  A node is made of a conjunction of items, which are parts of the schema that a value
 * must satisfy together.  Expanding a conjunction makes choices, each a conjunction of atoms: items whose keywords apply
 * directly. */
#pragma once
#include "base/buf.h"
#include "schema/schema_int.h"

#include <string.h>

enum role {
    ROLE_SCHEMA,
    ROLE_VALUE,   /* equal to this JSON value */
    ROLE_SCALARS, /* equal to one of the scalars of this array */
    ROLE_NOT,     /* not valid under this schema */
    ROLE_AGAINST, /* not valid under the keyword `key` of this schema, and of a type that it is about */
    ROLE_ABSENT,  /* if an object, without the name `key` */
    ROLE_LACKS,   /* an object without the name `key` */
    ROLE_HAS_NOT, /* an object whose value of the name `key` is not valid under this schema */
    ROLE_NEEDS,   /* if an object, with all names of this list */
    /* only in a list of what is still to be expanded */
    ROLE_ANY,    /* one of these schemas at least */
    ROLE_ENUM,   /* one of these values */
    ROLE_ONE,    /* exactly one of these schemas */
    ROLE_IF,     /* what if, then and else of this schema say */
    ROLE_DEPENDS /* without the name `key`, or valid under this schema or with these names */
};
struct item {
    const json_t *v;  /* borrowed from the schema */
    const char *path; /* borrowed from the compiler */
    enum role role;
    const char *key; /* borrowed from the schema, or NULL */
};
bool same_item(const struct item *a, const struct item *b);
struct items {
    struct item *v; /* owned */
    uint32_t n, cap;
};
int items_put(struct items *list, struct item it);
void items_done(struct items *list);

struct compiler {
    struct schema *s;
    const json_t *root;
    const char *what;
    bool exact;         /* oneOf needs its branches negated */
    bool old;           /* a draft before 2019-09, in which $ref hides its neighbours */
    struct items *conj; /* owned, [s->cap_node]: what each node is made of */
    uint32_t *table;    /* owned, [mask + 1]: node + 1 */
    uint32_t mask;
    char **path; /* owned: paths, for errors */
    size_t n_path, cap_path;
    struct { /* nodes that must have no value, since the branches of a oneOf must not meet */
        uint32_t node;
        const char *path;
    } * apart; /* owned */
    uint32_t n_apart, cap_apart;
    uint32_t choices; /* of the node under way */
};
/* Returns the node of a conjunction, which takes over the list. */
int node_of(struct compiler *c, struct items *list, uint32_t *out);
/* Returns parent/key, which lives as long as the compiler, or NULL. */
const char *path_below(struct compiler *c, const char *parent, const char *key);
const char *path_at(struct compiler *c, const char *parent, const char *key, size_t i);
int bad_keyword(const struct compiler *c, int code, const char *path, const char *keyword,
                const char *why);

/* expand.c: makes the alternatives of a node. */
int expand_node(struct compiler *c, uint32_t node);
/* expand.c: sets *out to what a $ref of `it` leads to. */
int resolve_ref(struct compiler *c, const struct item *it, const char *ref, struct item *out);
/* against.c: the alternatives of what is not valid under a schema, and the types that are left. */
int expand_not(struct compiler *c, const struct item *it,
               int (*branch)(struct compiler *c, const void *x, const struct item *it, size_t n),
               const void *x);
unsigned types_against(const struct compiler *c, const struct item *it);
/* keyword.c: refuses what a schema object has and this version does not support, and values of the wrong type. */
int check_keywords(const struct compiler *c, const struct item *it);

/* --- what an atom says */
enum {
    T_NULL = 1,
    T_BOOL = 2,
    T_INT = 4,
    T_FRACTION = 8,
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64,
    T_ALL = 127
};
unsigned type_of(const json_t *v);
/* Types that the keyword `type` names. */
int types_named(const struct compiler *c, const struct item *it, unsigned *out);
/* Returns the value of a keyword of an atom, or NULL. */
static inline const json_t *keyword(const struct item *it, const char *name)
{
    return it->role == ROLE_SCHEMA ? json_object_get(it->v, name) : NULL;
}
/* The scalars that an atom lists: false if it lists none, so that any value is possible. */
static inline bool lists_values(const struct item *it)
{
    return it->role == ROLE_VALUE || it->role == ROLE_SCALARS;
}
static inline size_t n_scalars(const struct item *it)
{
    return it->role == ROLE_SCALARS ? json_array_size(it->v) : 1;
}
static inline const json_t *scalar(const struct item *it, size_t i)
{
    return it->role == ROLE_SCALARS ? json_array_get(it->v, i) : it->v;
}
/* A count such as minItems; `none` where the keyword is absent. */
int count_keyword(const struct compiler *c, const struct item *it, const char *name, uint32_t none,
                  uint32_t *out);
/* strings.c, numbers.c, array.c, object.c: fill in a basic from all atoms. */
int make_string(struct compiler *c, const struct items *atoms, struct basic *b);
int make_number(struct compiler *c, const struct items *atoms, unsigned types, struct basic *b);
int make_array(struct compiler *c, const struct items *atoms, struct basic *b);
int make_object(struct compiler *c, const struct items *atoms, struct basic *b);
/* Replaces *d by what both accept; takes over b.  *d NULL: b. */
int narrow(struct dfa **d, struct dfa *b);
/* Returns the value of `name` if the atom must not be valid under it, else NULL. */
static inline const json_t *against(const struct item *it, const char *name)
{
    return it->role == ROLE_AGAINST && !strcmp(it->key, name) ? json_object_get(it->v, name) : NULL;
}
/* The values that an atom must not be equal to, as an atom that lists them.  False: it forbids none. */
bool forbidden(const struct item *it, struct item *list);
int count_of(const struct compiler *c, const struct item *it, const json_t *v, const char *name,
             uint32_t none, uint32_t *out);
/* Narrows min and max by two keywords of an atom, and by their opposites. */
int narrow_counts(const struct compiler *c, const struct item *it, const char *least,
                  const char *most, uint32_t *min, uint32_t *max);
int pattern_dfa(const char *pattern, size_t n, const char *where, struct dfa **out);
