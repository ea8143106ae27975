/* chat_defaults.c - default generation options of a chat, below those of the user.  They come from the first of
 * these places that has some:
 *
 *     the model's generation_config.json;
 *     MODEL.chat.json beside MODEL.gguf, which is only for chats, so kvik generate stays greedy;
 *     the sampling values in the GGUF file itself;
 *     kvik's own values for chats. */
#include "base/file.h"
#include "cli/cmd_chat.h"

#include <string.h>

/* Most models with values for chats have a temperature between 0.6 and 0.7 and top_p 0.9 or 0.95.  A repetition
 * penalty is not among kvik's values: it would also lower the endings of words that a text needs again. */
static const struct {
    const char *name;
    double value;
} chosen[] = {{"temperature", 0.6}, {"top_p", 0.9}};

static int chosen_values(json_t **out)
{
    *out = json_object();
    for (size_t i = 0; *out && i < countof(chosen); i++)
        if (json_object_set_new(*out, chosen[i].name, json_real(chosen[i].value)) < 0) {
            json_decref(*out);
            *out = NULL;
        }
    return *out ? 0 : ERR(NOMEM, "out of memory");
}

bool chat_fallback(const char *option, char out[32])
{
    static const char *const other[][2] = {
        {"max_new_tokens", "no limit"}, {"do_sample", "true"}, {"seed", "random"}};
    for (size_t i = 0; i < countof(chosen); i++)
        if (!strcmp(option, chosen[i].name)) return snprintf(out, 32, "%g", chosen[i].value) > 0;
    for (size_t i = 0; i < countof(other); i++)
        if (!strcmp(option, other[i][0])) return snprintf(out, 32, "%s", other[i][1]) > 0;
    return false;
}

/* Reads the options of MODEL.chat.json; *out stays NULL if there is no such file. */
static int read_beside(const char *model, json_t **out)
{
    static const char tail[] = ".gguf";
    char path[HUB_PATH + sizeof ".chat.json"];
    size_t n = strlen(model), k = strlen(tail);
    if (n < k || n >= HUB_PATH || strcmp(model + n - k, tail) != 0) return 0;
    snprintf(path, sizeof path, "%.*s.chat.json", (int)(n - k), model);
    return path_exists(path) ? engine_config_file(path, out) : 0;
}

/* Writes the options that come with a GGUF file; *out stays NULL if there are none. */
static int values_of_gguf(const kvik_model *m, json_t **out, const char **source)
{
    char *text = NULL;
    json_t *o = NULL;
    TRY(kvik_model_describe(m, &text));
    int e = json_parse(text, strlen(text), "the description", &o);
    kvik_free(text);
    if (e < 0) return e;
    json_t *found = json_object_get(o, "sampling");
    const char *path = json_string_value(json_object_get(o, "path"));
    if (path) e = read_beside(path, out);
    *source = "values of the .chat.json file beside the model";
    if (e >= 0 && !*out && json_is_object(found)) {
        *out = json_incref(found);
        *source = "values that the model's file recommends";
    }
    json_decref(o);
    return e;
}

int chat_defaults(const kvik_model *m, bool samples, json_t **out, const char **source)
{
    *out = NULL;
    if (samples) {
        *source = "values of the model's generation_config.json";
        *out = json_object();
    } else {
        TRY(values_of_gguf(m, out, source));
        if (!*out) {
            *source = "kvik's values for chats";
            TRY(chosen_values(out));
        }
    }
    if (json_object_get(*out, "do_sample")) return 0;
    if (json_object_set_new(*out, "do_sample", json_true()) == 0) return 0;
    json_decref(*out);
    *out = NULL;
    return ERR(NOMEM, "out of memory");
}
