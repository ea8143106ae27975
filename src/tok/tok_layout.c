/* tok_layout.c - the layout of one text and of a pair that a model reads as one: the ids that the post-processor
 * adds, the places of the texts, and the type of each part.  The templates of tokenizer.json are read here. */
#include "tok/tok_int.h"

#include <string.h>

#define FILE_NAME  TOK_JSON
#define LAYOUT_MAX 2048

void layout_done(struct layout *l)
{
    mem_free(l->part);
    *l = (struct layout){0};
}

static int put_part(struct layout *l, int32_t id, uint32_t type)
{
    if (l->n >= LAYOUT_MAX)
        return ERR(LIMIT, "tokenizer: more than %d ids and texts in a row", LAYOUT_MAX);
    if ((l->n & (l->n - 1)) == 0) { /* the room doubles */
        struct tok_part *p = mem_grow(l->part, l->n ? 2 * (size_t)l->n : 1, sizeof *p);
        if (!p) return ERR_NOMEM;
        l->part = p;
    }
    l->part[l->n++] = (struct tok_part){id, type};
    return 0;
}

/* Adds the parts of one text; a head or tail below 0 is left out. */
static int put_text(struct layout *l, int32_t head, int32_t text, int32_t tail, uint32_t type)
{
    if (head >= 0) TRY(put_part(l, head, type));
    TRY(put_part(l, text, type));
    return tail >= 0 ? put_part(l, tail, type) : 0;
}

int layout_frame(struct tok *t, int32_t head, int32_t tail, uint32_t second)
{
    TRY(put_text(&t->one, head, TOK_FIRST, tail, 0));
    TRY(put_text(&t->two, head, TOK_FIRST, tail, 0));
    return put_text(&t->two, head, TOK_SECOND, tail, second);
}

static int need_id(const struct tok *t, const json_t *v, int32_t *out)
{
    size_t n;
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id < 0 || id > INT32_MAX || !tok_piece(t, (int32_t)id, &n))
        return ERR(FORMAT,
                   FILE_NAME ": the post-processor names an id that is not in the vocabulary");
    *out = (int32_t)id;
    return 0;
}

static int put_tokens(struct tok *t, const char *name, const json_t *special, uint32_t type,
                      struct layout *l)
{
    const json_t *ids = json_object_get(json_object_get(special, name), "ids"), *one;
    int32_t id;
    size_t i;
    if (!json_is_array(ids))
        return ERR(FORMAT, FILE_NAME ": the template's token \"%s\" has no ids in special_tokens",
                   name);
    json_array_foreach(ids, i, one)
    {
        TRY(need_id(t, one, &id));
        TRY(put_part(l, id, type));
    }
    return 0;
}

/* Reads [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, ..].  *seen:
 * number of texts. */
static int put_template(struct tok *t, const json_t *list, const json_t *special, struct layout *l,
                        uint32_t seen[2])
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        const json_t *token = json_object_get(one, "SpecialToken");
        const json_t *part = token ? token : json_object_get(one, "Sequence");
        const char *name = NULL;
        uint32_t type = 0;
        if (!part) return ERR(FORMAT, FILE_NAME ": a template piece is neither token nor sequence");
        TRY(json_get_str(part, FILE_NAME, "id", &name));
        TRY(json_get_u32(part, FILE_NAME, "type_id", 0, INT32_MAX, &type));
        if (!name) return ERR(FORMAT, FILE_NAME ": \"id\" must be a string");
        if (token) {
            TRY(put_tokens(t, name, special, type, l));
            continue;
        }
        bool second = strcmp(name, "B") == 0;
        if (!second && strcmp(name, "A") != 0)
            return ERR(UNSUPPORTED,
                       FILE_NAME ": a template has sequence \"%s\"; A and B are supported", name);
        TRY(put_part(l, second ? TOK_SECOND : TOK_FIRST, type));
        seen[second]++;
    }
    return 0;
}

/* Reads the template of pairs.  One that cannot be used leaves the tokenizer without a layout of pairs, since single texts do
 * not need it. */
static int put_pair(struct tok *t, const json_t *pair, const json_t *special)
{
    uint32_t seen[2] = {0};
    int e = json_is_array(pair) ? put_template(t, pair, special, &t->two, seen) : ERR_FORMAT;
    if (e < 0 || seen[0] != 1 || seen[1] != 1) layout_done(&t->two);
    return e == ERR_NOMEM ? e : 0;
}

static int load_template(struct tok *t, const json_t *o)
{
    const json_t *single = json_object_get(o, "single"), *pair = json_object_get(o, "pair");
    const json_t *special = json_object_get(o, "special_tokens");
    uint32_t seen[2] = {0};
    if (!json_is_array(single))
        return ERR(FORMAT, FILE_NAME ": TemplateProcessing without \"single\"");
    TRY(put_template(t, single, special, &t->one, seen));
    if (seen[0] != 1 || seen[1])
        return ERR(UNSUPPORTED, FILE_NAME ": a template must have sequence A exactly once");
    return put_pair(t, pair, special);
}

int layout_load(struct tok *t, const char *type, const json_t *o)
{
    bool bert = strcmp(type, "BertProcessing") == 0;
    int32_t head, tail;
    if (t->one.n) return ERR(UNSUPPORTED, FILE_NAME ": two post-processors that add tokens");
    if (strcmp(type, "TemplateProcessing") == 0) return load_template(t, o);
    if (!bert && strcmp(type, "RobertaProcessing") != 0)
        return ERR(UNSUPPORTED, FILE_NAME ": post-processor \"%s\" is not supported", type);
    TRY(need_id(t, json_array_get(json_object_get(o, "cls"), 1), &head));
    TRY(need_id(t, json_array_get(json_object_get(o, "sep"), 1), &tail));
    TRY(put_text(&t->one, head, TOK_FIRST, tail, 0));
    TRY(put_text(&t->two, head, TOK_FIRST, tail, 0));
    if (bert) return put_text(&t->two, -1, TOK_SECOND, tail, 1);
    return put_text(&t->two, tail, TOK_SECOND, tail,
                    0); /* RoBERTa puts two tokens between the texts, and has one type */
}

const struct tok_part *tok_layout(const struct tok *t, bool pair, uint32_t *n)
{
    const struct layout *l = pair ? &t->two : &t->one;
    *n = l->n;
    return l->part;
}
