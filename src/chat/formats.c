/* formats.c - chat formats that many models share, as Jinja templates under their usual names, for models whose
 * files have no template.  Each is written from the published description of its format.
 *
 * A format with special tokens can be guessed, because the vocabulary has these tokens.  Formats of plain words
 * (llama2, alpaca, vicuna, zephyr) leave no trace in a vocabulary, so they must be named.
 *
 * Where a format has no place for a system message, the message stands before the first message of the user. */
#include "chat/formats.h"
#include "tok/tok.h"

#include <string.h>

/* Refuses the roles that a format does not have. */
#define ROLES(name)                                                                                \
    "{% for m in messages if m['role'] not in ['system', 'user', 'assistant'] %}"                  \
    "{{ raise_exception('the chat format " name " has no role ' + m['role']) }}{% endfor %}"

/* Sets `system` to the text of a first message with that role, or to none, and `turns` to the other messages. */
#define SPLIT                                                                                      \
    "{% set system = none %}{% set turns = messages %}"                                            \
    "{% if messages and messages[0]['role'] == 'system' %}"                                        \
    "{% set system = messages[0]['content'] | trim %}{% set turns = messages[1:] %}{% endif %}"

#define BOS          "{{ bos_token if bos_token is defined and bos_token is not none else '' }}"
#define EOS          "(eos_token if eos_token is defined and eos_token is not none else '')"
#define PROMPT(text) "{% if add_generation_prompt %}{{ '" text "' }}{% endif %}"

/* Formats with a header that names the role, then the text, then a token that ends the turn: ChatML and its
 * relatives. */
static const char chatml[] =
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}" PROMPT("<|im_start|>assistant\\n");

static const char llama3[] = BOS
    "{% for m in messages %}"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}" PROMPT("<|start_header_id|>assistant<|end_header_id|>\\n\\n");

static const char llama4[] = BOS
    "{% for m in messages %}"
    "{{ '<|header_start|>' + m['role'] + '<|header_end|>\\n\\n' + m['content'] | trim + '<|eot|>' }}"
    "{% endfor %}" PROMPT("<|header_start|>assistant<|header_end|>\\n\\n");

static const char phi3[] =
    ROLES("phi3") "{% for m in messages %}"
                  "{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}"
                  "{% endfor %}" PROMPT("<|assistant|>\\n");

static const char zephyr[] =
    ROLES("zephyr") "{% for m in messages %}"
                    "{{ '<|' + m['role'] + '|>\\n' + m['content'] + " EOS " + '\\n' }}"
                    "{% endfor %}" PROMPT("<|assistant|>\\n");

static const char gemma[] =
    ROLES("gemma") SPLIT BOS "{% for m in turns %}"
                             "{% if m['role'] == 'assistant' %}{{ '<start_of_turn>model\\n' }}"
                             "{% else %}{{ '<start_of_turn>user\\n' }}{% endif %}"
                             "{% if loop.first and system %}{{ system + '\\n\\n' }}{% endif %}"
                             "{{ m['content'] | trim + '<end_of_turn>\\n' }}"
                             "{% endfor %}" PROMPT("<start_of_turn>model\\n");

static const char llama2[] = ROLES("llama2") SPLIT
    "{% for m in turns %}"
    "{% if m['role'] == 'assistant' %}{{ ' ' + m['content'] | trim + ' ' + " EOS " }}"
    "{% else %}" BOS "{{ '[INST] ' }}"
    "{% if loop.first and system %}{{ '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' }}{% endif %}"
    "{{ m['content'] | trim + ' [/INST]' }}{% endif %}"
    "{% endfor %}";

static const char mistral[] = ROLES("mistral") SPLIT BOS
    "{% for m in turns %}"
    "{% if m['role'] == 'assistant' %}{{ ' ' + m['content'] | trim + " EOS " }}"
    "{% else %}{{ '[INST] ' }}"
    "{% if loop.first and system %}{{ system + '\\n\\n' }}{% endif %}"
    "{{ m['content'] + '[/INST]' }}{% endif %}"
    "{% endfor %}";

static const char alpaca[] = ROLES("alpaca") SPLIT BOS
    "{{ system if system else 'Below is an instruction that describes a task. Write a response that "
    "appropriately completes the request.' }}{{ '\\n\\n' }}"
    "{% for m in turns %}"
    "{% if m['role'] == 'assistant' %}{{ '### Response:' + m['content'] + " EOS " + '\\n\\n' }}"
    "{% else %}{{ '### Instruction:\\n' + m['content'] + '\\n\\n' }}{% endif %}"
    "{% endfor %}" PROMPT("### Response:");

static const char vicuna[] = ROLES("vicuna") SPLIT BOS
    "{{ system if system else 'A chat between a curious user and an artificial intelligence assistant. The "
    "assistant gives helpful, detailed, and polite answers to the user\\'s questions.' }}{{ ' ' }}"
    "{% for m in turns %}"
    "{% if m['role'] == 'assistant' %}{{ 'ASSISTANT: ' + m['content'] + " EOS " }}"
    "{% else %}{{ 'USER: ' + m['content'] + ' ' }}{% endif %}"
    "{% endfor %}" PROMPT("ASSISTANT:");

static const char deepseek[] = ROLES("deepseek") SPLIT BOS
    "{{ system if system else '' }}"
    "{% for m in turns %}"
    "{% if m['role'] == 'assistant' %}{{ '<｜Assistant｜>' + m['content'] + " EOS " }}"
    "{% else %}{{ '<｜User｜>' + m['content'] }}{% endif %}"
    "{% endfor %}" PROMPT("<｜Assistant｜>");

/* mark: special tokens that identify the format; none if the format has none.  The guess is the first format whose
 * marks are all in the vocabulary. */
static const struct {
    struct chat_format is;
    const char *mark[3];
} format[] = {
    {{"chatml", chatml, "<|im_end|>"}, {"<|im_start|>", "<|im_end|>"}},
    {{"gemma", gemma, "<end_of_turn>"}, {"<start_of_turn>", "<end_of_turn>"}},
    {{"llama2", llama2, NULL}, {NULL}},
    {{"llama3", llama3, "<|eot_id|>"}, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {{"llama4", llama4, "<|eot|>"}, {"<|header_start|>", "<|header_end|>", "<|eot|>"}},
    {{"mistral", mistral, NULL}, {"[INST]", "[/INST]"}},
    {{"phi3", phi3, "<|end|>"}, {"<|user|>", "<|assistant|>", "<|end|>"}},
    {{"alpaca", alpaca, NULL}, {NULL}},
    {{"zephyr", zephyr, NULL}, {NULL}},
    {{"vicuna", vicuna, NULL}, {NULL}},
    {{"deepseek", deepseek, NULL}, {"<｜User｜>", "<｜Assistant｜>"}},
};

const struct chat_format *format_at(uint32_t i)
{
    return i < countof(format) ? &format[i].is : NULL;
}

static bool marked(const struct tok *t, const char *const mark[3])
{
    for (size_t i = 0; i < 3 && mark[i]; i++)
        if (tok_find(t, mark[i], strlen(mark[i])) < 0) return false;
    return mark[0] != NULL;
}

const struct chat_format *format_guess(const struct tok *t)
{
    for (size_t i = 0; i < countof(format); i++)
        if (marked(t, format[i].mark)) return &format[i].is;
    return NULL;
}

const struct chat_format *format_find(const char *name)
{
    const struct chat_format *f = NULL;
    for (uint32_t i = 0; name && (f = format_at(i)); i++)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}
