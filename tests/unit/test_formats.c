/* test_formats.c - the chat formats that are built in, byte for byte.  The expected texts are written by hand from the
 * published description of each format, not by running the templates. */
#include "base/base.h"
#include "kvik.h"
#include "render_request.h"

#include <string.h>

#define SPECIAL "\"special_tokens\": {\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}"
#define TURNS                                                                                      \
    "{\"role\": \"user\", \"content\": \"One?\"}, {\"role\": \"assistant\", \"content\": \"1\"}, " \
    "{\"role\": \"user\", \"content\": \"Two?\"}"
#define SYSTEM "{\"role\": \"system\", \"content\": \"Be brief.\"}, "

static const struct expected {
    const char *name;
    const char *turns;  /* with a generation prompt */
    const char *system; /* the same behind a system message */
    const char *said;   /* one exchange, without a generation prompt */
} expected[] = {
    {"chatml",
     "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n"
     "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n",
     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n"
     "<|im_start|>assistant\n1<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n",
     "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"},
    {"gemma",
     "<s><start_of_turn>user\nOne?<end_of_turn>\n<start_of_turn>model\n1<end_of_turn>\n"
     "<start_of_turn>user\nTwo?<end_of_turn>\n<start_of_turn>model\n",
     "<s><start_of_turn>user\nBe brief.\n\nOne?<end_of_turn>\n<start_of_turn>model\n1<end_of_turn>\n"
     "<start_of_turn>user\nTwo?<end_of_turn>\n<start_of_turn>model\n",
     "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHo<end_of_turn>\n"},
    {"llama2", "<s>[INST] One? [/INST] 1 </s><s>[INST] Two? [/INST]",
     "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nOne? [/INST] 1 </s><s>[INST] Two? [/INST]",
     "<s>[INST] Hi [/INST] Ho </s>"},
    {"llama3",
     "<s><|start_header_id|>user<|end_header_id|>\n\nOne?<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n1<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nTwo?<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nOne?<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n1<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nTwo?<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\nHo<|eot_id|>"},
    {"llama4",
     "<s><|header_start|>user<|header_end|>\n\nOne?<|eot|><|header_start|>assistant<|header_end|>\n\n1<|eot|>"
     "<|header_start|>user<|header_end|>\n\nTwo?<|eot|><|header_start|>assistant<|header_end|>\n\n",
     "<s><|header_start|>system<|header_end|>\n\nBe brief.<|eot|><|header_start|>user<|header_end|>\n\nOne?<|eot|>"
     "<|header_start|>assistant<|header_end|>\n\n1<|eot|><|header_start|>user<|header_end|>\n\nTwo?<|eot|>"
     "<|header_start|>assistant<|header_end|>\n\n",
     "<s><|header_start|>user<|header_end|>\n\nHi<|eot|><|header_start|>assistant<|header_end|>\n\nHo<|eot|>"},
    {"mistral", "<s>[INST] One?[/INST] 1</s>[INST] Two?[/INST]",
     "<s>[INST] Be brief.\n\nOne?[/INST] 1</s>[INST] Two?[/INST]", "<s>[INST] Hi[/INST] Ho</s>"},
    {"phi3",
     "<|user|>\nOne?<|end|>\n<|assistant|>\n1<|end|>\n<|user|>\nTwo?<|end|>\n<|assistant|>\n",
     "<|system|>\nBe brief.<|end|>\n<|user|>\nOne?<|end|>\n<|assistant|>\n1<|end|>\n<|user|>\nTwo?<|end|>\n"
     "<|assistant|>\n",
     "<|user|>\nHi<|end|>\n<|assistant|>\nHo<|end|>\n"},
    {"alpaca",
     "<s>Below is an instruction that describes a task. Write a response that appropriately completes the "
     "request.\n\n### Instruction:\nOne?\n\n### Response:1</s>\n\n### Instruction:\nTwo?\n\n### Response:",
     "<s>Be brief.\n\n### Instruction:\nOne?\n\n### Response:1</s>\n\n### Instruction:\nTwo?\n\n### Response:",
     "<s>Below is an instruction that describes a task. Write a response that appropriately completes the "
     "request.\n\n### Instruction:\nHi\n\n### Response:Ho</s>\n\n"},
    {"zephyr", "<|user|>\nOne?</s>\n<|assistant|>\n1</s>\n<|user|>\nTwo?</s>\n<|assistant|>\n",
     "<|system|>\nBe brief.</s>\n<|user|>\nOne?</s>\n<|assistant|>\n1</s>\n<|user|>\nTwo?</s>\n<|assistant|>\n",
     "<|user|>\nHi</s>\n<|assistant|>\nHo</s>\n"},
    {"vicuna",
     "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
     "detailed, and polite answers to the user's questions. USER: One? ASSISTANT: 1</s>USER: Two? ASSISTANT:",
     "<s>Be brief. USER: One? ASSISTANT: 1</s>USER: Two? ASSISTANT:",
     "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
     "detailed, and polite answers to the user's questions. USER: Hi ASSISTANT: Ho</s>"},
    {"deepseek", "<s><｜User｜>One?<｜Assistant｜>1</s><｜User｜>Two?<｜Assistant｜>",
     "<s>Be brief.<｜User｜>One?<｜Assistant｜>1</s><｜User｜>Two?<｜Assistant｜>",
     "<s><｜User｜>Hi<｜Assistant｜>Ho</s>"},
};

static void renders(const char *name, const char *request, const char *want)
{
    char *text = NULL;
    const char *t = kvik_format_template(name);
    assert_non_null(t);
    if (render_request(t, request, &text) < 0) fail_msg("%s: %s", name, kvik_last_error());
    if (strcmp(text, want) != 0) fail_msg("%s:\n%s\nwant:\n%s", name, text, want);
    kvik_free(text);
}

static void test_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(expected); i++) {
        const struct expected *x = &expected[i];
        renders(x->name,
                "{\"messages\": [" TURNS
                "], \"kwargs\": {\"add_generation_prompt\": true}, " SPECIAL "}",
                x->turns);
        renders(x->name,
                "{\"messages\": [" SYSTEM TURNS
                "], \"kwargs\": {\"add_generation_prompt\": true}, " SPECIAL "}",
                x->system);
        renders(
            x->name,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
            "\"content\": \"Ho\"}], " SPECIAL "}",
            x->said);
    }
}

static void test_every_format_expected(void **state)
{
    (void)state;
    const char *name;
    uint32_t n = 0;
    for (; (name = kvik_format_name(n)); n++) {
        bool found = false;
        for (size_t i = 0; i < countof(expected); i++)
            found |= !strcmp(name, expected[i].name);
        if (!found) fail_msg("no expected text for %s", name);
    }
    assert_int_equal(n, countof(expected));
    assert_null(kvik_format_template("gema"));
    assert_null(kvik_format_template(NULL));
    assert_null(kvik_format_end("gema"));
    assert_null(kvik_format_end("llama2"));
    assert_string_equal(kvik_format_end("gemma"), "<end_of_turn>");
    assert_null(kvik_format_guess(NULL));
}

/* Without special tokens, with other roles and with nothing to say, a format answers or refuses in a sentence. */
static void test_odd_chats(void **state)
{
    (void)state;
    char *text;
    const char *name;
    renders("llama2", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}",
            "[INST] Hi [/INST]");
    renders("gemma", "{\"messages\": [{\"role\": \"user\", \"content\": \" Hi \"}]}",
            "<start_of_turn>user\nHi<end_of_turn>\n");
    renders("chatml", "{\"messages\": [{\"role\": \"tool\", \"content\": \"7\"}]}",
            "<|im_start|>tool\n7<|im_end|>\n");
    assert_true(render_request(kvik_format_template("gemma"),
                               "{\"messages\": [{\"role\": \"tool\", \"content\": \"7\"}]}",
                               &text) < 0);
    assert_non_null(strstr(kvik_last_error(), "the chat format gemma has no role tool"));
    for (uint32_t i = 0; (name = kvik_format_name(i)); i++) {
        assert_int_equal(render_request(kvik_format_template(name), "{\"messages\": []}", &text),
                         0);
        kvik_free(text);
        assert_int_equal(
            render_request(kvik_format_template(name),
                           "{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}]}", &text),
            0);
        kvik_free(text);
    }
}

/* A reply that is continued stays open in every format. */
static void test_continued(void **state)
{
    (void)state;
    const char *name;
    for (uint32_t i = 0; (name = kvik_format_name(i)); i++) {
        char *text;
        assert_int_equal(
            render_request(kvik_format_template(name),
                           "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
                           "\"assistant\", \"content\": \"Well then\"}], \"kwargs\": "
                           "{\"continue_final_message\": true}, " SPECIAL "}",
                           &text),
            0);
        size_t n = strlen(text);
        assert_true(n > 9);
        assert_string_equal(text + n - 9, "Well then");
        kvik_free(text);
    }
}

/* Files are described without a load; a template needs a tokenizer, and is compiled before it is taken. */
static void test_peek_and_set(void **state)
{
    (void)state;
    char *json;
    kvik_model *m;
    assert_int_equal(kvik_model_peek("tests/golden/models/gemma3.gguf", &json), 0);
    assert_non_null(strstr(json, "\"architecture\":\"gemma3\""));
    assert_non_null(strstr(json, "\"supported\":true"));
    kvik_free(json);
    assert_int_equal(kvik_model_peek(NULL, &json), KVIK_ARG);
    assert_int_equal(kvik_model_peek("tests/golden/models/absent", &json), KVIK_NOTFOUND);
    assert_int_equal(kvik_model_open("tests/golden/models/gemma3.gguf", &m), 0);
    assert_int_equal(kvik_model_set_template(m, "{{ 1 }}", NULL), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "no tokenizer"));
    assert_int_equal(kvik_model_set_template(m, NULL, NULL), KVIK_ARG);
    assert_int_equal(kvik_model_set_template(NULL, "x", NULL), KVIK_ARG);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),    cmocka_unit_test(test_every_format_expected),
        cmocka_unit_test(test_odd_chats),    cmocka_unit_test(test_continued),
        cmocka_unit_test(test_peek_and_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
