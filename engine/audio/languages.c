// languages.c - the languages Whisper knows, in the order of their tokens, and the other names people write for them.
#include "engine/audio/languages.h"

#include <ctype.h>
#include <string.h>

#include "engine/engine.h"

struct language {
    const char *code, *name;
};

static const struct language all[LANGUAGES] = {
    {"en", "english"}, {"zh", "chinese"}, {"de", "german"}, {"es", "spanish"}, {"ru", "russian"}, {"ko", "korean"},
    {"fr", "french"}, {"ja", "japanese"}, {"pt", "portuguese"}, {"tr", "turkish"}, {"pl", "polish"},
    {"ca", "catalan"}, {"nl", "dutch"}, {"ar", "arabic"}, {"sv", "swedish"}, {"it", "italian"}, {"id", "indonesian"},
    {"hi", "hindi"}, {"fi", "finnish"}, {"vi", "vietnamese"}, {"he", "hebrew"}, {"uk", "ukrainian"}, {"el", "greek"},
    {"ms", "malay"}, {"cs", "czech"}, {"ro", "romanian"}, {"da", "danish"}, {"hu", "hungarian"}, {"ta", "tamil"},
    {"no", "norwegian"}, {"th", "thai"}, {"ur", "urdu"}, {"hr", "croatian"}, {"bg", "bulgarian"},
    {"lt", "lithuanian"}, {"la", "latin"}, {"mi", "maori"}, {"ml", "malayalam"}, {"cy", "welsh"}, {"sk", "slovak"},
    {"te", "telugu"}, {"fa", "persian"}, {"lv", "latvian"}, {"bn", "bengali"}, {"sr", "serbian"},
    {"az", "azerbaijani"}, {"sl", "slovenian"}, {"kn", "kannada"}, {"et", "estonian"}, {"mk", "macedonian"},
    {"br", "breton"}, {"eu", "basque"}, {"is", "icelandic"}, {"hy", "armenian"}, {"ne", "nepali"},
    {"mn", "mongolian"}, {"bs", "bosnian"}, {"kk", "kazakh"}, {"sq", "albanian"}, {"sw", "swahili"},
    {"gl", "galician"}, {"mr", "marathi"}, {"pa", "punjabi"}, {"si", "sinhala"}, {"km", "khmer"}, {"sn", "shona"},
    {"yo", "yoruba"}, {"so", "somali"}, {"af", "afrikaans"}, {"oc", "occitan"}, {"ka", "georgian"},
    {"be", "belarusian"}, {"tg", "tajik"}, {"sd", "sindhi"}, {"gu", "gujarati"}, {"am", "amharic"}, {"yi", "yiddish"},
    {"lo", "lao"}, {"uz", "uzbek"}, {"fo", "faroese"}, {"ht", "haitian creole"}, {"ps", "pashto"}, {"tk", "turkmen"},
    {"nn", "nynorsk"}, {"mt", "maltese"}, {"sa", "sanskrit"}, {"lb", "luxembourgish"}, {"my", "myanmar"},
    {"bo", "tibetan"}, {"tl", "tagalog"}, {"mg", "malagasy"}, {"as", "assamese"}, {"tt", "tatar"},
    {"haw", "hawaiian"}, {"ln", "lingala"}, {"ha", "hausa"}, {"ba", "bashkir"}, {"jw", "javanese"},
    {"su", "sundanese"}, {"yue", "cantonese"},
};

static const struct language aliases[] = {
    {"my", "burmese"}, {"ca", "valencian"}, {"nl", "flemish"}, {"ht", "haitian"}, {"lb", "letzeburgesch"},
    {"ps", "pushto"}, {"pa", "panjabi"}, {"ro", "moldavian"}, {"ro", "moldovan"}, {"si", "sinhalese"},
    {"es", "castilian"}, {"zh", "mandarin"}, {"he", "iw"}, {"jw", "jv"},
};

const char *engine_language_at(int i)
{
    return i >= 0 && i < LANGUAGES ? all[i].code : NULL;
}

const char *engine_language_name(const char *code)
{
    for (int i = 0; code && i < LANGUAGES; i++)
        if (!strcmp(all[i].code, code))
            return all[i].name;
    return NULL;
}

static const char *find(const char *word)
{
    for (int i = 0; i < LANGUAGES; i++)
        if (!strcmp(all[i].code, word) || !strcmp(all[i].name, word))
            return all[i].code;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i].name, word))
            return aliases[i].code;
    return NULL;
}

const char *engine_language_code(const char *text)
{
    char word[32];
    size_t n = strlen(text);
    if (n > 4 && !memcmp(text, "<|", 2) && !memcmp(text + n - 2, "|>", 2)) {
        text += 2;
        n -= 4;
    }
    if (n == 0 || n >= sizeof word)
        return NULL;
    for (size_t i = 0; i < n; i++)
        word[i] = (char)tolower((unsigned char)text[i]);
    word[n] = 0;
    const char *code = find(word);
    size_t tag = strcspn(word, "-_");
    if (code || tag == n)
        return code;
    word[tag] = 0;  // a region: en-US
    return find(word);
}
