/* compile.h - a compilation in progress.  A node stands for a conjunction of items: parts of the schema that a
 * value must satisfy together.  Expanding a conjunction yields choices.  Each choice is a conjunction of atoms:
 * items whose keywords apply directly. */
#pragma once
#include "base/buf.h"
#include "schema/places.h"
#include "schema/schema_int.h"

#include <string.h>

enum role {
    ROLE_SCHEMA,
    ROLE_VALUE,   /* equal to this JSON value */
    ROLE_SCALARS, /* equal to one of the scalars of this array */
    ROLE_NOT,     /* not valid under this schema */
    /* breaks the keyword `key` of this schema, and has a type that the keyword is about */
    ROLE_AGAINST,
    ROLE_ABSENT,  /* not an object, or an object without the name `key` */
    ROLE_LACKS,   /* an object without the name `key` */
    ROLE_HAS_NOT, /* an object whose value of the name `key` is not valid under this schema */
    ROLE_NEEDS,   /* not an object, or an object with all names of this list */
    /* these roles occur only in a choice that is not expanded yet */
    ROLE_ANY,    /* valid under at least one of these schemas */
    ROLE_ENUM,   /* equal to one of these values */
    ROLE_ONE,    /* valid under exactly one of these schemas */
    ROLE_IF,     /* valid under `if`, `then` and `else` of this schema */
    ROLE_DEPENDS /* without the name `key`; or valid under this schema, or with all these names */
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
    bool exact; /* the branches of oneOf overlap, so each is compiled with the others negated */
    bool old;   /* a draft before 2019-09: keywords beside $ref do not count */
    struct items *conj;   /* owned, [s->cap_node]: the conjunction of each node */
    struct places places; /* of nodes, by conj */
    char **path;          /* owned: paths, for errors */
    size_t n_path, cap_path;
    /* Nodes that must have no value: each is the conjunction of two branches of a oneOf. */
    struct {
        uint32_t node;
        const char *path;
    } * apart; /* owned */
    uint32_t n_apart, cap_apart;
    uint32_t choices; /* number of choices of the node that is being expanded */
};
/* Returns the node of a conjunction.  Takes over the list. */
int node_of(struct compiler *c, struct items *list, uint32_t *out);
/* Returns parent/key, which lives as long as the compiler, or NULL. */
const char *path_below(struct compiler *c, const char *parent, const char *key);
const char *path_at(struct compiler *c, const char *parent, const char *key, size_t i);
int bad_keyword(const struct compiler *c, int code, const char *path, const char *keyword,
                const char *why, ...) __attribute__((format(printf, 5, 6)));

/* expand.c: makes the alternatives of a node. */
int expand_node(struct compiler *c, uint32_t node);
/* expand.c: sets *out to the target of the item's $ref. */
int resolve_ref(struct compiler *c, const struct item *it, const char *ref, struct item *out);
/* against.c: makes the alternatives of a negated schema, and the types that are left. */
int expand_not(struct compiler *c, const struct item *it,
               int (*branch)(struct compiler *c, const void *x, const struct item *it, size_t n),
               const void *x);
unsigned types_against(const struct compiler *c, const struct item *it);
/* keyword.c: refuses keywords of a schema object that this version does not support, and values of the wrong type. */
int check_keywords(const struct compiler *c, const struct item *it);

/* --- the keywords of an atom */
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
/* Returns the types that the keyword `type` names. */
int types_named(const struct compiler *c, const struct item *it, unsigned *out);
/* Returns the value of a keyword of an atom, or NULL. */
static inline const json_t *keyword(const struct item *it, const char *name)
{
    return it->role == ROLE_SCHEMA ? json_object_get(it->v, name) : NULL;
}
/* True if the atom lists the scalars that are allowed; false if it lists none, so that any scalar is. */
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
/* Reads a count such as minItems; `none` is its value if the keyword is absent. */
int count_keyword(const struct compiler *c, const struct item *it, const char *name, uint32_t none,
                  uint32_t *out);
/* Fill in a basic from all atoms (strings.c, numbers.c, array.c, object.c). */
int make_string(struct compiler *c, const struct items *atoms, struct basic *b);
int make_number(struct compiler *c, const struct items *atoms, unsigned types, struct basic *b);
int make_array(struct compiler *c, const struct items *atoms, struct basic *b);
int make_object(struct compiler *c, const struct items *atoms, struct basic *b);
/* Replaces *d by the automaton of the texts that both *d and b accept, and takes over b.  *d NULL: *d becomes b. */
int narrow(struct dfa **d, struct dfa *b);
/* Returns the value of the keyword `name` if the atom demands that this keyword is broken, else NULL. */
static inline const json_t *against(const struct item *it, const char *name)
{
    return it->role == ROLE_AGAINST && !strcmp(it->key, name) ? json_object_get(it->v, name) : NULL;
}
/* Makes an atom that lists the values which `it` forbids.  False: it forbids none. */
bool forbidden(const struct item *it, struct item *list);
int count_of(const struct compiler *c, const struct item *it, const json_t *v, const char *name,
             uint32_t none, uint32_t *out);
/* Narrows min and max by two keywords of an atom, or by their opposites if the atom demands that they are broken. */
int narrow_counts(const struct compiler *c, const struct item *it, const char *least,
                  const char *most, uint32_t *min, uint32_t *max);
int pattern_dfa(const char *pattern, size_t n, const char *where, struct dfa **out);
