// patterns.c - the table of published pre-tokeniser patterns. Read-only data.
//
// Sources: the patterns in the models' own tokenizer.json files. Contractions are case-insensitive by Unicode's rules
// (U+017F counts as an s), as Oniguruma has it.

#include "engine/tokenizer/patterns.h"

#include <string.h>

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define LLAMA3 CONTRACTION "|" LETTERS "|\\p{N}{1,3}|" SYMBOLS "|" TAIL
#define QWEN2 CONTRACTION "|" LETTERS "|\\p{N}|" SYMBOLS "|" TAIL
#define QWEN35 CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL

// Words that change from upper to lower case are cut there.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CAMEL(end) \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define SLASH_SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define O200K CAMEL(CONTRACTION "?") "|\\p{N}{1,3}|" SLASH_SYMBOLS "|" TAIL
#define TEKKEN CAMEL("") "|\\p{N}|" SLASH_SYMBOLS "|" TAIL
#define YOUTU CAMEL(CONTRACTION "?") "|\\p{N}|" SLASH_SYMBOLS "|" TAIL

// Han characters stand apart from the letters.
#define NO_HAN_UPPER "(?:(?!\\p{Han})" UPPER ")"
#define NO_HAN_LOWER "(?:(?!\\p{Han})" LOWER ")"
#define KIMI                                                                                                          \
    "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "*" NO_HAN_LOWER "+" CONTRACTION "?|[^\\r\\n\\p{L}\\p{N}]?"       \
    NO_HAN_UPPER "+" NO_HAN_LOWER "*" CONTRACTION "?|\\p{N}{1,3}|" SYMBOLS "|" TAIL

#define CJK "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define ASCII_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
#define DEEPSEEK3 ASCII_WORD "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL
#define SPARK ASCII_WORD "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+"
#define OLD_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define OLD_PUNCTUATION "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+"
// The cased letters of DeepSeek's first vocabulary, which leave out some blocks.
#define CASED \
    "[" \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}" \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}-\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}" \
    "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}" \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}" \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}" \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}" \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}" \
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}" \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}" \
    "\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}-\\x{2184}" \
    "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}-\\x{2CF3}\\x{A640}-\\x{A66D}" \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}" \
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}" \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}" \
    "\\x{1E900}-\\x{1E943}" \
    "]"

#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
#define BAILING                                                                                                       \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"       \
    "\\s+(?!\\S)|\\s+"
#define SEED CONTRACTION "|" LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" TAIL
#define EXAONE_MOE                                                                                                    \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}[\\p{L}\\p{M}]*+(?: \\p{L}[\\p{L}\\p{M}]*+)*+|\\p{N}| ?"                 \
    "[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define JAIS2                                                                                                         \
    CONTRACTION "|" LETTERS "|\\p{N}{1,3}|" SYMBOLS "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|" \
    "\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
#define MINICPM5 CONTRACTION "|" LETTERS "|\\p{N}+|" SYMBOLS "|" TAIL
#define UFAKZEKA LETTERS "|\\p{N}|" SYMBOLS "|" TAIL

static const struct tokenizer_pattern table[] = {
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     {LLAMA3},
     {.ignore_merges = true, .adds_bos = true}},
    {"dbrx smaug-bpe", {LLAMA3}, {0}},
    {"glm4 glm5", {LLAMA3}, {.ignore_merges = true, .no_bos = true}},
    {"chatglm-bpe", {LLAMA3}, {.no_bos = true}},
    {"qwen2 deepseek-r1-qwen", {QWEN2}, {.nfc = true}},
    {"megrez kormo f2llmv2 hunyuan solar-open stablelm2 grok-2", {QWEN2}, {0}},
    {"qwen35", {QWEN35}, {.nfc = true}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {O200K}, {0}},
    {"granite-embed-multi-97m", {O200K}, {.ignore_merges = true}},
    {"tekken", {TEKKEN}, {.ignore_merges = true, .adds_bos = true}},
    {"tiny_aya cohere2moe", {"\\d{1,3}(?=(?:\\d{3})*\\b)", O200K}, {0}},
    {"youtu",
     {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|"
      "[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}"
      "\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" CJK,
      YOUTU},
     {.ignore_merges = true}},
    {"kimi-k2", {KIMI}, {0}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", {"\\p{N}{1,3}", CJK, DEEPSEEK3}, {0}},
    {"spark2_5", {"\\p{N}{1,3}", CJK, SPARK, "\\p{N}"}, {0}},
    {"deepseek-llm", {"[\\r\\n]", "\\s?" CASED "+", OLD_PUNCTUATION, "\\s+$", OLD_CJK, "\\p{N}+"}, {0}},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", OLD_CJK, "\\p{N}"}, {0}},
    {"smollm starcoder refact codeshell exaone minerva-7b mellum2", {"\\p{N}", PATTERN_GPT2}, {0}},
    {"command-r", {"\\p{N}", PATTERN_GPT2}, {.nfc = true}},
    {"mpt olmo modern-bert", {PATTERN_GPT2}, {.nfc = true}},
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum jais trillion "
     "granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe",
     {PATTERN_GPT2},
     {0}},
    {"falcon", {"[\\p{P}$+<=>\\^~|`]+", PATTERN_GPT2, "[0-9][0-9][0-9]"}, {0}},
    {"bloom poro-chat gpt3-finnish", {BLOOM}, {0}},
    {"viking", {BLOOM, "\\p{N}"}, {0}},
    {"bailingmoe bailingmoe2 llada-moe", {BAILING}, {0}},
    {"seed-coder", {SEED}, {0}},
    {"superbpe", {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}, {0}},
    {"exaone-moe", {EXAONE_MOE}, {0}},
    {"jais-2", {JAIS2}, {0}},
    {"minicpm5", {"\\p{N}{1,3}", MINICPM5}, {.ignore_merges = true}},
    {"ufakzeka", {UFAKZEKA}, {0}},
    {"laguna", {"[^\\n]+|[\\n]+", QWEN2}, {0}},
    {"gemma4 granite-embed-multi-311m sarvam-moe", {"[^\\n]+|[\\n]+"}, {.raw = true}},
};

static bool has_name(const char *names, const char *name, size_t len)
{
    for (const char *p = names; p; p = strchr(p, ' ')) {
        p += *p == ' ';
        if (strncmp(p, name, len) == 0 && (p[len] == ' ' || p[len] == 0))
            return true;
    }
    return false;
}

const struct tokenizer_pattern *tokenizer_patterns_find(const char *name, size_t len)
{
    if (len == 0 || memchr(name, ' ', len))
        return NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (has_name(table[i].names, name, len))
            return &table[i];
    return NULL;
}
