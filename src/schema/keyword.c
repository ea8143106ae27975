/* keyword.c - the keywords of JSON Schema that this version knows.  An unknown keyword is refused by name, because
 * it might restrict values. */
#include "schema/compile.h"

#include <string.h>

static const char *const supported[] = {"$ref",
                                        "type",
                                        "enum",
                                        "const",
                                        "anyOf",
                                        "oneOf",
                                        "allOf",
                                        "properties",
                                        "required",
                                        "additionalProperties",
                                        "patternProperties",
                                        "propertyNames",
                                        "minProperties",
                                        "maxProperties",
                                        "items",
                                        "prefixItems",
                                        "additionalItems",
                                        "minItems",
                                        "maxItems",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "multipleOf",
                                        "not",
                                        "if",
                                        "then",
                                        "else",
                                        "dependencies",
                                        "dependentRequired",
                                        "dependentSchemas"};
/* annotations, which do not restrict values */
static const char *const ignored[] = {"title",
                                      "description",
                                      "default",
                                      "examples",
                                      "example",
                                      "$schema",
                                      "$comment",
                                      "$defs",
                                      "definitions",
                                      "deprecated",
                                      "readOnly",
                                      "writeOnly",
                                      "contentMediaType",
                                      "contentEncoding",
                                      "contentSchema",
                                      "$anchor",
                                      "$vocabulary",
                                      "discriminator",
                                      "externalDocs"};

static bool in_list(const char *const *list, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], key)) return true;
    return false;
}

static bool is_list_of(const json_t *v, bool (*good)(const json_t *), size_t least)
{
    if (!json_is_array(v) || json_array_size(v) < least) return false;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!good(json_array_get(v, i))) return false;
    return true;
}

static bool is_schema(const json_t *v)
{
    return json_is_object(v) || json_is_boolean(v);
}

static bool is_text(const json_t *v)
{
    return json_is_string(v);
}

static bool is_schemas(const json_t *v)
{
    const char *key;
    json_t *e;
    if (!json_is_object(v)) return false;
    json_object_foreach((json_t *)(uintptr_t)v, key, e)
    {
        if (!is_schema(e)) return false;
    }
    return true;
}

static bool depends_well(const json_t *v)
{
    const char *key;
    json_t *e;
    if (!json_is_object(v)) return false;
    json_object_foreach((json_t *)(uintptr_t)v, key, e)
    {
        if (!is_schema(e) && !is_list_of(e, is_text, 0)) return false;
    }
    return true;
}

static const char *wrong_value(const char *key, const json_t *v)
{
    static const char *const schemas[] = {"anyOf", "oneOf", "allOf", "prefixItems"};
    static const char *const maps[] = {"properties", "patternProperties"};
    static const char *const single[] = {
        "additionalProperties", "propertyNames", "additionalItems", "not", "if", "then", "else"};
    static const char *const texts[] = {"$ref", "pattern", "format"};
    static const char *const numbers[] = {"minimum", "maximum", "exclusiveMinimum",
                                          "exclusiveMaximum"};
    if (in_list(schemas, countof(schemas), key) && !is_list_of(v, is_schema, 1))
        return "must be a list of schemas, not an empty one";
    if (in_list(maps, countof(maps), key) && !is_schemas(v)) return "must be an object of schemas";
    if (in_list(single, countof(single), key) && !is_schema(v)) return "must be a schema";
    if (in_list(texts, countof(texts), key) && !json_is_string(v)) return "must be a string";
    bool old = !strncmp(key, "exclusive", 9) &&
               json_is_boolean(v); /* a boolean beside minimum or maximum is draft 4 */
    if (in_list(numbers, countof(numbers), key) && !json_is_number(v) && !old)
        return "must be a number";
    if (!strncmp(key, "depend", 6) && !depends_well(v))
        return "must be an object of schemas, or of lists of names";
    if (!strcmp(key, "items") && !is_schema(v) && !is_list_of(v, is_schema, 0))
        return "must be a schema";
    if (!strcmp(key, "required") && !is_list_of(v, is_text, 0)) return "must be a list of names";
    if (!strcmp(key, "enum") && !json_is_array(v)) return "must be a list of values";
    if (!strcmp(key, "multipleOf") && !(json_number_value(v) > 0))
        return "must be a number above 0";
    return NULL;
}

int check_keywords(const struct compiler *c, const struct item *it)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)it->v, key, v)
    {
        if (in_list(ignored, countof(ignored), key) || !strncmp(key, "x-", 2)) continue;
        if (!strcmp(key, "$id") && it->v == c->root) continue;
        if (!strcmp(key, "uniqueItems") && json_is_false(v)) continue;
        if (!in_list(supported, countof(supported), key)) {
            char name[96];
            snprintf(name, sizeof name, "the keyword \"%.80s\"", key);
            return bad_keyword(c, ERR_UNSUPPORTED, it->path, name, "is not supported");
        }
        const char *wrong = wrong_value(key, v);
        if (wrong) return bad_keyword(c, ERR_FORMAT, it->path, key, "%s", wrong);
    }
    return 0;
}

unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return T_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return T_BOOL;
    case JSON_INTEGER:
        return T_INT;
    case JSON_REAL: {
        double d = json_real_value(v);
        return d > -1e18 && d < 1e18 && d == (double)(int64_t)d ? T_INT : T_FRACTION;
    }
    case JSON_STRING:
        return T_STRING;
    case JSON_ARRAY:
        return T_ARRAY;
    case JSON_OBJECT:
        break;
    }
    return T_OBJECT;
}

static int one_type(const struct compiler *c, const struct item *it, const json_t *v, unsigned *out)
{
    static const struct {
        const char *name;
        unsigned types;
    } known[] = {{"null", T_NULL},     {"boolean", T_BOOL},
                 {"integer", T_INT},   {"number", T_INT | T_FRACTION},
                 {"string", T_STRING}, {"array", T_ARRAY},
                 {"object", T_OBJECT}};
    for (size_t i = 0; json_is_string(v) && i < countof(known); i++)
        if (!strcmp(json_string_value(v), known[i].name)) {
            *out |= known[i].types;
            return 0;
        }
    return bad_keyword(
        c, ERR_FORMAT, it->path, "type",
        "must be null, boolean, integer, number, string, array or object, or a list of these");
}

int types_named(const struct compiler *c, const struct item *it, unsigned *out)
{
    const json_t *v = keyword(it, "type");
    *out = v ? 0 : T_ALL;
    if (!v) return 0;
    if (!json_is_array(v)) return one_type(c, it, v, out);
    for (size_t i = 0; i < json_array_size(v); i++)
        TRY(one_type(c, it, json_array_get(v, i), out));
    return 0;
}

int count_keyword(const struct compiler *c, const struct item *it, const char *name, uint32_t none,
                  uint32_t *out)
{
    return count_of(c, it, keyword(it, name), name, none, out);
}

int count_of(const struct compiler *c, const struct item *it, const json_t *v, const char *name,
             uint32_t none, uint32_t *out)
{
    double d = json_number_value(v);
    *out = none;
    if (!v) return 0;
    if (!json_is_number(v) || d < 0 || d != (double)(uint64_t)MIN(MAX(d, 0), 1e18))
        return bad_keyword(c, ERR_FORMAT, it->path, name, "must be a whole number from 0");
    *out = d < SCHEMA_MANY ? (uint32_t)d : SCHEMA_MANY;
    if (*out == SCHEMA_MANY && none == 0)
        return bad_keyword(c, ERR_LIMIT, it->path, name, "is %.0f; at most %u is possible", d,
                           SCHEMA_MANY - 1);
    return 0;
}

int narrow_counts(const struct compiler *c, const struct item *it, const char *least,
                  const char *most, uint32_t *min, uint32_t *max)
{
    uint32_t low, high, not_low, not_high;
    const json_t *v = against(it, least), *w = against(it, most);
    TRY(count_keyword(c, it, least, 0, &low));
    TRY(count_keyword(c, it, most, SCHEMA_MANY, &high));
    TRY(count_of(c, it, v, least, 0, &not_low));
    TRY(count_of(c, it, w, most, SCHEMA_MANY, &not_high));
    *min = MAX(*min, low);
    *max = MIN(*max, high);
    if ((v && !not_low) || (w && not_high >= SCHEMA_MANY - 1)) {
        /* No length is below 0, and none is above SCHEMA_MANY: min 1 and max 0 then mean that nothing is valid. */
        *min = 1;
        *max = 0;
        return 0;
    }
    if (v) *max = MIN(*max, not_low - 1);
    if (w) *min = MAX(*min, not_high + 1);
    return 0;
}
