/* cmd_render.c - kvik render: prints a chat as the model sees it, without running the model. */
#include "cli/cli.h"

#include <string.h>

struct options {
    struct common common;
    const char *jsonl, *template, *messages, *kwargs, *special, *system, *now;
    bool prompt;
};

static const struct arg_option table[] = {
    {"template", ARG_TEXT, offsetof(struct options, template), "FILE|NAME", NULL,
     "instead of a MODEL: a file with a template, or a built-in format: chatml, gemma, llama2, llama3, llama4, "
     "mistral, phi3, alpaca, zephyr, vicuna, deepseek"},
    {"messages", ARG_TEXT, offsetof(struct options, messages), "JSON|FILE|-", NULL,
     "the chat as a list of {\"role\", \"content\"}; -: on standard input"},
    {"system", ARG_TEXT, offsetof(struct options, system), "TEXT", NULL,
     "system message before the TEXTs"},
    {"add-generation-prompt", ARG_BOOL, offsetof(struct options, prompt), "true|false", NULL,
     "end with the beginning of a reply (default: true)"},
    {"kwargs", ARG_TEXT, offsetof(struct options, kwargs), "JSON", NULL,
     "variables of the template, such as tools, documents and continue_final_message"},
    {"special-tokens", ARG_TEXT, offsetof(struct options, special), "JSON", NULL,
     "special tokens such as {\"bos_token\": \"<s>\"}; with a MODEL they replace its own"},
    {"now", ARG_TEXT, offsetof(struct options, now), "TIME", NULL,
     "time for the template, such as 2025-03-07T14:05:09"},
    {"jsonl", ARG_TEXT, offsetof(struct options, jsonl), "FILE|-", NULL,
     "answer each line {\"messages\", \"kwargs\", \"special_tokens\", \"now\"} with {\"rendered\"} or {\"error\"}"},
};

struct renderer {
    kvik_tokenizer *tok; /* owned; NULL with --template */
    struct template template;
};

/* Writes a part of the request as JSON text.  If it is absent or null, *out stays NULL. */
static int request_part(const json_t *request, const char *key, char **out)
{
    const json_t *v = json_object_get(request, key);
    return !v || json_is_null(v) ? 0 : json_text(v, out);
}

static int render(const struct renderer *r, const json_t *request, char **text)
{
    char *messages = NULL, *kwargs = NULL, *special = NULL;
    const char *now = NULL;
    if (!json_is_object(request))
        return ERR(ARG, "request: must be a JSON object with \"messages\"");
    TRY(json_get_str(request, "request", "now", &now));
    int e = request_part(request, "messages", &messages);
    if (e >= 0) e = request_part(request, "kwargs", &kwargs);
    if (e >= 0) e = request_part(request, "special_tokens", &special);
    const kvik_chat chat = {.size = sizeof chat,
                            .json = messages,
                            .kwargs = kwargs,
                            .template_text = r->template.text,
                            .special_tokens = special,
                            .now = now};
    if (e >= 0) e = kvik_chat_render(r->tok, &chat, text);
    mem_free(messages);
    mem_free(kwargs);
    mem_free(special);
    return e;
}

static json_t *render_request(void *ctx, const json_t *request)
{
    char *text;
    if (render(ctx, request, &text) < 0) return NULL;
    json_t *o = json_pack("{s:o}", "rendered", say_json(text, strlen(text)));
    kvik_free(text);
    return o;
}

/* Makes messages of the TEXTs: of the user and the assistant in turn, beginning with the user. */
static json_t *turns(const struct options *o, const struct texts *t)
{
    json_t *m = json_array();
    if (o->system) json_array_append_new(m, say_message("system", o->system, strlen(o->system)));
    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(
            m, say_message(i & 1 ? "assistant" : "user", t->text[i].s, t->text[i].n));
    return m;
}

static int parse_json(const char *option, const char *text, bool may_be_file, json_t **out)
{
    char first = text[strspn(text, " \t\r\n")];
    if (may_be_file && first != '[') return json_read(text, 64u << 20, out);
    return json_parse(text, strlen(text), option, out);
}

static int request_of(const struct options *o, const struct texts *t, json_t **out)
{
    json_t *request = json_object(), *messages = NULL, *kwargs = NULL, *special = NULL;
    int e = 0;
    if (o->messages)
        e = parse_json("--messages", t->piped ? t->piped : o->messages, !t->piped, &messages);
    else
        messages = turns(o, t);
    if (e >= 0 && o->kwargs) e = parse_json("--kwargs", o->kwargs, false, &kwargs);
    if (e >= 0 && o->special) e = parse_json("--special-tokens", o->special, false, &special);
    if (e >= 0 && !kwargs) kwargs = json_object();
    if (e >= 0 && json_is_object(kwargs) && o->prompt &&
        !json_object_get(kwargs, "continue_final_message"))
        json_object_set_new(kwargs, "add_generation_prompt", json_true());
    if (messages) json_object_set(request, "messages", messages);
    if (kwargs) json_object_set(request, "kwargs", kwargs);
    if (special) json_object_set(request, "special_tokens", special);
    if (o->now) json_object_set_new(request, "now", say_json(o->now, strlen(o->now)));
    json_decref(messages);
    json_decref(kwargs);
    json_decref(special);
    if (e < 0)
        json_decref(request);
    else
        *out = request;
    return e;
}

static int render_one(const struct renderer *r, const struct options *o, const struct texts *t)
{
    json_t *request;
    char *rendered;
    int e = request_of(o, t, &request);
    if (e < 0) {
        say_error(e);
        return e == ERR_FORMAT ? EXIT_USAGE : EXIT_FAILED;
    }
    e = render(r, request, &rendered);
    json_decref(request);
    if (e < 0) return say_error(e);
    fputs(rendered, stdout);
    kvik_free(rendered);
    return 0;
}

/* Takes the template of --template or of the model.  If the model has none, takes the format that its tokens
 * suggest. */
static int choose_template(struct renderer *r, const struct options *o, const char *model)
{
    char found[HUB_PATH];
    if (o->template) return template_read(o->template, &r->template);
    TRY(model_locate(model, found));
    TRY(kvik_tokenizer_open(found, &r->tok));
    r->template.text = kvik_tokenizer_template(r->tok);
    return r->template.text ? 0 : template_guess(model, r->tok, &r->template);
}

static int render_chat(const struct options *o, const struct args *a)
{
    size_t first = o->template ? 0 : 1;
    if (a->n < first) return say_usage("kvik render needs a MODEL, or --template FILE or NAME");
    struct texts texts = {0};
    size_t n = a->n - first;
    if ((o->jsonl != NULL) + (o->messages != NULL) + (n > 0) > 1)
        return say_usage("give one of --jsonl, --messages and TEXT");
    if (!o->jsonl && !o->messages && !n)
        return say_usage("give --jsonl, --messages or TEXT to render");
    if (o->system && !n) return say_usage("--system goes with TEXT; put it into the messages");
    bool piped = o->messages && !strcmp(o->messages, "-");
    int status = n || piped ? texts_read(a, first, true, &texts) : 0;
    struct renderer r = {0};
    int e = status ? 0 : choose_template(&r, o, a->word[0]);
    if (e < 0) status = say_error(e);
    if (!status)
        status = o->jsonl ? jsonl_run(o->jsonl, render_request, &r) : render_one(&r, o, &texts);
    texts_done(&texts);
    kvik_tokenizer_close(r.tok);
    template_done(&r.template);
    return status;
}

static int run_render(const struct command *self, int argc, char **argv)
{
    struct options o = {.prompt = true};
    struct args a;
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0) status = render_chat(&o, &a);
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_render = {
    .name = "render",
    .usage = "MODEL|--template T [TEXT...]",
    .summary = "show a chat as the model sees it",
    .about =
        "Renders messages with the chat template of MODEL, of a file or of a built-in format. Each TEXT is a message: the first is the\n"
        "user's, the second the assistant's, and so on. The TEXT - is standard input; behind -- a dash is a text.",
    .run = run_render,
    .option = table,
    .n_options = countof(table),
};
