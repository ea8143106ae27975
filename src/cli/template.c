/* template.c - chooses the chat template: a file or a built-in format of --template, else the model's own, else the format
 * that the model's special tokens suggest.  A guess is announced with one line. */
#include "base/file.h"
#include "base/near.h"
#include "base/utf8.h"
#include "cli/cli.h"

#include <string.h>

enum { TEMPLATE_MOST = 4 << 20 }; /* bytes; the longest published templates have 40 KiB */

/* Writes the names of the built-in formats: "chatml, gemma, ...". */
static const char *names(char out[256])
{
    const char *name;
    size_t n = 0;
    for (uint32_t i = 0; (name = kvik_format_name(i)) && n < 256; i++)
        n += (size_t)snprintf(out + n, 256 - n, "%s%s", i ? ", " : "", name);
    return out;
}

static int absent(const char *given)
{
    struct near near;
    char list[256];
    const char *name;
    near_begin(&near, given);
    for (uint32_t i = 0; (name = kvik_format_name(i)); i++)
        near_try(&near, name);
    if (near.best && !strpbrk(given, "./"))
        return ERR(NOTFOUND,
                   "--template: there is no file %.200s and no format of that name; did you mean "
                   "\"%s\"?",
                   given, near.best);
    return ERR(
        NOTFOUND,
        "--template: there is no file %.200s and no format of that name; the built-in formats are "
        "%s",
        given, names(list));
}

/* Takes the template out of a file such as tokenizer_config.json.  Other texts are templates already and stay as
 * they are. */
static int unwrap(char **text)
{
    json_t *o = NULL;
    size_t brace = strspn(*text, " \t\r\n");
    if ((*text)[brace] != '{' || strchr("{%#", (*text)[brace + 1]) ||
        json_parse(*text, strlen(*text), "template", &o) < 0)
        return 0;
    const char *inside = json_string_value(json_object_get(o, "chat_template"));
    char *copy = inside ? mem_strdup(inside) : NULL;
    json_decref(o);
    if (!inside) return ERR(FORMAT, "a JSON file for a template needs a string \"chat_template\"");
    if (!copy) return ERR_NOMEM;
    mem_free(*text);
    *text = copy;
    return 0;
}

static int read_file(const char *path, char **text)
{
    size_t n;
    if (dir_exists(path))
        return ERR(ARG, "--template: %.200s is a directory; give the file with the template", path);
    int e = file_read(path, TEMPLATE_MOST, text, &n);
    if (e < 0) return err_prefix(e, "--template");
    if (memchr(*text, 0, n) || !utf8_valid(*text, n))
        e = ERR(FORMAT, "it is not text; a chat template is a Jinja template in UTF-8");
    if (e >= 0) e = unwrap(text);
    if (e >= 0) return 0;
    mem_free(*text);
    return err_prefix(e, "--template %.200s", path);
}

int template_read(const char *given, struct template *out)
{
    *out = (struct template){0};
    if ((out->text = kvik_format_template(given))) {
        out->format = given;
        return 0;
    }
    if (!path_exists(given)) return absent(given);
    char *text;
    TRY(read_file(given, &text));
    out->text = out->owned = text;
    return 0;
}

void template_done(struct template *t)
{
    mem_free(t->owned);
    *t = (struct template){0};
}

int template_check(const char *given)
{
    struct template t;
    if (!given) return 0;
    int e = template_read(given, &t);
    if (e < 0) return say_error(e);
    template_done(&t);
    return 0;
}

int template_guess(const char *model, const kvik_tokenizer *t, struct template *out)
{
    char list[256];
    const char *format = kvik_format_guess(t), *name = strrchr(model, '/');
    *out =
        (struct template){.text = format ? kvik_format_template(format) : NULL, .format = format};
    if (!format)
        return ERR(
            NOTFOUND,
            "%s has no chat template, and its tokens suggest none; choose one with --template "
            "FILE or --template NAME (%s)",
            model, names(list));
    fprintf(
        stderr,
        "kvik: %s has no chat template; its special tokens suggest the format %s, and --template "
        "NAME or FILE chooses another\n",
        name && name[1] ? name + 1 : model, format);
    return 0;
}

int template_open(kvik_model *m, const char *name, const char *given)
{
    const kvik_tokenizer *t = kvik_model_tokenizer(m);
    struct template chosen = {0};
    if (!t || (!given && kvik_tokenizer_template(t))) return 0;
    TRY(given ? template_read(given, &chosen) : template_guess(name, t, &chosen));
    const char *end = chosen.format ? kvik_format_end(chosen.format) : NULL;
    int e = kvik_model_set_template(m, chosen.text, end);
    template_done(&chosen);
    return e;
}
