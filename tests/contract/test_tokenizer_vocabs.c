// Real vocabularies, when there are any: for each NAME.gguf in the folder OXINFERD_VOCABS with NAME.gguf.inp (texts,
// separated by a line __ggml_vocab_test__) and NAME.gguf.out (a line of ids for each), ids must be equal.

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"

static bool same_ids(const struct ids *ids, const char *line)
{
    char *end;
    for (size_t i = 0; i < ids->len; i++, line = end)
        if (strtol(line, &end, 10) != ids->data[i] || end == line)
            return false;
    return line[strspn(line, " ")] == 0;
}

static int check_text(const struct tokenizer *t, const char *name, const char *text, size_t len, const char *want)
{
    struct text_span span = {text, len, true};
    struct ids ids = {0};
    err e = {0};
    if (tokenizer_encode(t, &span, 1, false, &ids, &e))
        fail_msg("%s: %s", name, e.text);
    bool same = same_ids(&ids, want);
    if (!same) {
        printf("%s: text '%.*s'\n  want%s\n  got ", name, (int)len, text, want);
        for (size_t i = 0; i < ids.len; i++)
            printf(" %d", ids.data[i]);
        printf("\n");
    }
    free(ids.data);
    return !same;
}

// Lists that were not made by the model's own tokenizer: Qwen 3.5's composes characters (NFC), its list's texts in
// decomposed form were counted without.
static const struct {
    const char *name;
    int differ;
} known[] = {{"ggml-vocab-qwen35.gguf", 3}};

static int check_lists(const struct tokenizer *t, const char *name, char *in, char *out)
{
    static const char mark[] = "\n__ggml_vocab_test__\n";
    int bad = 0, n = 0;
    for (char *next, *line = out, *line_end; in && *line; in = next, line = line_end + 1, n++) {
        next = strstr(in, mark);
        size_t len = next ? (size_t)(next - in) : strlen(in);
        next = next ? next + strlen(mark) : NULL;
        line_end = strchr(line, '\n');
        if (!line_end)
            break;
        *line_end = 0;
        bad += check_text(t, name, in, len, line);
    }
    printf("%s: %d texts, %d differ\n", name, n, bad);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            bad -= known[i].differ;
    return bad;
}

static int check_vocab(const char *folder, const char *name)
{
    char path[3][1024];
    char *in = NULL, *out = NULL;
    size_t n;
    struct weights *w = NULL;
    struct tokenizer *t = NULL;
    err e = {0};
    snprintf(path[0], sizeof path[0], "%s/%s", folder, name);
    snprintf(path[1], sizeof path[1], "%s/%s.inp", folder, name);
    snprintf(path[2], sizeof path[2], "%s/%s.out", folder, name);
    if (!file_exists(path[1]) || !file_exists(path[2]))
        return 0;
    assert_int_equal(file_read(path[1], 1 << 24, &in, &n, &e) || file_read(path[2], 1 << 24, &out, &n, &e), 0);
    if (weights_open(path[0], &w, &e))
        fail_msg("%s: %s", name, e.text);
    int bad = 0;
    if (tokenizer_open(w, &t, &e) == ERR_UNSUPPORTED)
        printf("%s: left out: %s\n", name, e.text);
    else if (!t)
        fail_msg("%s: %s", name, e.text);
    else
        bad = check_lists(t, name, in, out);
    tokenizer_close(t);
    weights_close(w);
    free(in);
    free(out);
    return bad;
}

static void test_vocabs(void **state)
{
    (void)state;
    const char *folder = getenv("OXINFERD_VOCABS");
    DIR *d = folder ? opendir(folder) : NULL;
    if (!d) {
        printf("skip tokenizer vocabularies: set OXINFERD_VOCABS to a folder of vocabulary-only GGUF files with .inp "
               "and .out\n");
        skip();
        return;
    }
    int bad = 0;
    for (struct dirent *entry; (entry = readdir(d));) {
        size_t n = strlen(entry->d_name);
        if (n > 5 && strcmp(entry->d_name + n - 5, ".gguf") == 0)
            bad += check_vocab(folder, entry->d_name);
    }
    closedir(d);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vocabs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
