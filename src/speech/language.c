/* language.c - languages by name and code.  The model's generation configuration (lang_to_id) says which of them
 * it knows. */
#include "speech/speech.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *code, *name;
} known[] = {
    {"af", "afrikaans"},   {"am", "amharic"},    {"ar", "arabic"},        {"as", "assamese"},
    {"az", "azerbaijani"}, {"ba", "bashkir"},    {"be", "belarusian"},    {"bg", "bulgarian"},
    {"bn", "bengali"},     {"bo", "tibetan"},    {"br", "breton"},        {"bs", "bosnian"},
    {"ca", "catalan"},     {"ca", "valencian"},  {"cs", "czech"},         {"cy", "welsh"},
    {"da", "danish"},      {"de", "german"},     {"el", "greek"},         {"en", "english"},
    {"es", "spanish"},     {"es", "castilian"},  {"et", "estonian"},      {"eu", "basque"},
    {"fa", "persian"},     {"fi", "finnish"},    {"fo", "faroese"},       {"fr", "french"},
    {"gl", "galician"},    {"gu", "gujarati"},   {"ha", "hausa"},         {"haw", "hawaiian"},
    {"he", "hebrew"},      {"hi", "hindi"},      {"hr", "croatian"},      {"ht", "haitian creole"},
    {"ht", "haitian"},     {"hu", "hungarian"},  {"hy", "armenian"},      {"id", "indonesian"},
    {"is", "icelandic"},   {"it", "italian"},    {"ja", "japanese"},      {"jw", "javanese"},
    {"ka", "georgian"},    {"kk", "kazakh"},     {"km", "khmer"},         {"kn", "kannada"},
    {"ko", "korean"},      {"la", "latin"},      {"lb", "luxembourgish"}, {"lb", "letzeburgesch"},
    {"ln", "lingala"},     {"lo", "lao"},        {"lt", "lithuanian"},    {"lv", "latvian"},
    {"mg", "malagasy"},    {"mi", "maori"},      {"mk", "macedonian"},    {"ml", "malayalam"},
    {"mn", "mongolian"},   {"mr", "marathi"},    {"ms", "malay"},         {"mt", "maltese"},
    {"my", "myanmar"},     {"my", "burmese"},    {"ne", "nepali"},        {"nl", "dutch"},
    {"nl", "flemish"},     {"nn", "nynorsk"},    {"no", "norwegian"},     {"oc", "occitan"},
    {"pa", "punjabi"},     {"pa", "panjabi"},    {"pl", "polish"},        {"ps", "pashto"},
    {"ps", "pushto"},      {"pt", "portuguese"}, {"ro", "romanian"},      {"ro", "moldavian"},
    {"ro", "moldovan"},    {"ru", "russian"},    {"sa", "sanskrit"},      {"sd", "sindhi"},
    {"si", "sinhala"},     {"si", "sinhalese"},  {"sk", "slovak"},        {"sl", "slovenian"},
    {"sn", "shona"},       {"so", "somali"},     {"sq", "albanian"},      {"sr", "serbian"},
    {"su", "sundanese"},   {"sv", "swedish"},    {"sw", "swahili"},       {"ta", "tamil"},
    {"te", "telugu"},      {"tg", "tajik"},      {"th", "thai"},          {"tk", "turkmen"},
    {"tl", "tagalog"},     {"tr", "turkish"},    {"tt", "tatar"},         {"uk", "ukrainian"},
    {"ur", "urdu"},        {"uz", "uzbek"},      {"vi", "vietnamese"},    {"yi", "yiddish"},
    {"yo", "yoruba"},      {"yue", "cantonese"}, {"zh", "chinese"},       {"zh", "mandarin"},
};

KVIK_API const char *kvik_speech_language(uint32_t i, const char **code)
{
    if (code) *code = i < countof(known) ? known[i].code : NULL;
    return i < countof(known) ? known[i].name : NULL;
}

int language_find(const struct speech_marks *k, const char *name, int32_t *id)
{
    char token[64];
    const char *code = name;
    for (size_t i = 0; i < countof(known); i++)
        if (!strcasecmp(known[i].name, name)) code = known[i].code;
    snprintf(token, sizeof token, name[0] == '<' ? "%s" : "<|%s|>", code);
    for (char *c = token; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    const json_t *v = json_object_get(k->languages, token);
    if (!json_is_integer(v))
        return ERR(ARG,
                   "language \"%s\": the model does not know it; give a name or a code, as "
                   "\"English\" or \"en\"",
                   name);
    *id = (int32_t)json_integer_value(v);
    return 0;
}

void language_code(const struct speech_marks *k, int32_t id, char out[16])
{
    const char *token;
    json_t *v;
    out[0] = 0;
    json_object_foreach((json_t *)(uintptr_t)k->languages, token, v)
    {
        size_t n = strlen(token);
        if (json_integer_value(v) == id && n > 4 && n < 20)
            snprintf(out, 16, "%.*s", (int)(n - 4), token + 2);
    }
}

bool language_unspaced(const char *code)
{
    static const char *const unspaced[] = {"zh", "ja", "th", "lo", "my", "yue"};
    for (size_t i = 0; i < countof(unspaced); i++)
        if (!strcmp(code, unspaced[i])) return true;
    return false;
}
