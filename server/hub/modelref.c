// See the header.
#include "server/hub/modelref.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/utf8.h"

enum { OWNER_MAX = 96, PARTS_MAX = 16, NAME_MAX_BYTES = 255 };

static const char name_bytes[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

// ---- names of files

static bool is_device(const char *part, size_t n)
{
    static const char *const names[] = {"con", "prn", "aux", "nul", "conin$", "conout$"};
    size_t stem = 0;
    while (stem < n && part[stem] != '.')
        stem++;
    while (stem && part[stem - 1] == ' ')
        stem--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == stem && !strncasecmp(names[i], part, stem))
            return true;
    return stem == 4 && (!strncasecmp(part, "com", 3) || !strncasecmp(part, "lpt", 3)) &&
           isdigit((unsigned char)part[3]);
}

static const char *wrong_part(const char *part, size_t n)
{
    if (n == 0)
        return "it has an empty part";
    if ((n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
        return "it has a part '.' or '..'";
    if (n > NAME_MAX_BYTES)
        return "a part of it has more than 255 bytes";
    if (part[n - 1] == '.' || part[n - 1] == ' ')
        return "a part of it ends in a dot or a space";
    if (is_device(part, n))
        return "a part of it is a device's name";
    if (n >= 9 && !strncasecmp(part, ".oxinferd", 9))
        return "such names are oxinferd's own";
    return NULL;
}

static const char *wrong_path(const char *path)
{
    size_t n = strlen(path);
    int parts = 0;
    if (n == 0)
        return "it is empty";
    if (n >= MODELREF_PATH)
        return "it has more than 1023 bytes";
    if (!utf8_valid(path, n))
        return "it is not UTF-8";
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)path[i];
        if (c < ' ' || c == 127 || (c == 0xC2 && (unsigned char)path[i + 1] < 0xA0))
            return "it has a control character";
        if (c == '\\')
            return "it has a backslash";
    }
    for (const char *p = path;; p++) {
        size_t len = strcspn(p, "/");
        const char *wrong = wrong_part(p, len);
        if (wrong)
            return wrong;
        if (++parts > PARTS_MAX)
            return "it has more than 16 parts";
        p += len;
        if (!*p)
            return NULL;
    }
}

err_code modelref_check_path(const char *path, err *e)
{
    const char *wrong = wrong_path(path);
    char shown[80];
    size_t n = 0;
    if (!wrong)
        return ERR_OK;
    for (; n + 1 < sizeof shown && path[n]; n++)
        shown[n] = path[n] < ' ' || path[n] == 127 ? '?' : path[n];
    shown[n] = 0;
    return err_set(e, ERR_INVALID, "'%s%s' is refused as the name of a file: %s", shown, path[n] ? "..." : "", wrong);
}

// ---- references

// One half of OWNER/NAME, as huggingface.co has them.
static bool repo_part(const char *s, size_t n)
{
    if (n == 0 || n > OWNER_MAX || strspn(s, name_bytes) < n || strchr(".-", s[0]) || strchr(".-", s[n - 1]))
        return false;
    for (size_t i = 0; i + 1 < n; i++)
        if ((s[i] == '-' || s[i] == '.') && s[i] == s[i + 1])
            return false;
    return true;
}

static bool revision_ok(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if ((s[i] == '/' || s[i] == '.') && (i == 0 || i + 1 == n || s[i + 1] == s[i] || s[i + 1] == '/'))
            return false;
    return n > 0 && s[0] != '-' && strspn(s, "/") == 0 &&
           strspn(s, "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static bool take(char *out, size_t size, const char *from, size_t n)
{
    if (n >= size)
        return false;
    memcpy(out, from, n);
    out[n] = 0;
    return true;
}

err_code modelref_parse(const char *text, struct modelref *ret_ref, err *e)
{
    struct modelref r = {0};
    size_t head = strcspn(text, ":@"), owner = strcspn(text, "/:@");
    const char *colon = strchr(text, ':'), *at = strchr(text, '@'), *end = text + strlen(text);
    const char *name = text + owner + 1;
    size_t len = owner < head ? strcspn(name, "/:@") : 0;
    bool ok = strlen(text) < 512 && owner < head && repo_part(text, owner) && repo_part(name, len) &&
              take(r.repo, sizeof r.repo, text, owner + 1 + len);
    const char *rest = name + len;  // of the head: nothing, or /SUBFOLDER
    if (ok && rest < text + head) {
        err ignored;
        ok = take(r.subdir, sizeof r.subdir, rest + 1, (size_t)(text + head - rest - 1)) &&
             !modelref_check_path(r.subdir, &ignored);
    }
    if (ok && colon)
        ok = take(r.quant, sizeof r.quant, colon + 1, (size_t)((at > colon ? at : end) - colon - 1)) && r.quant[0] &&
             strspn(r.quant, name_bytes) == strlen(r.quant);
    if (ok && at)
        ok = take(r.revision, sizeof r.revision, at + 1, (size_t)((colon > at ? colon : end) - at - 1)) &&
             revision_ok(r.revision);
    if (!ok)
        return err_set(e, ERR_INVALID, "'%.100s' names no model of a hub: expected OWNER/NAME, OWNER/NAME:QUANT or "
                       "OWNER/NAME/SUBFOLDER, and perhaps @REVISION", text);
    if (strcmp(r.revision, "main") == 0)
        r.revision[0] = 0;
    *ret_ref = r;
    return ERR_OK;
}

const char *modelref_text(const struct modelref *r, char out[MODELREF_TEXT])
{
    char quant[MODELREF_PART];
    size_t n = 0;
    for (; r->quant[n]; n++)
        quant[n] = (char)toupper((unsigned char)r->quant[n]);
    quant[n] = 0;
    snprintf(out, MODELREF_TEXT, "%s%s%s%s%s%s%s", r->repo, *r->subdir ? "/" : "", r->subdir, *quant ? ":" : "", quant,
             *r->revision ? "@" : "", r->revision);
    return out;
}

// "--" is '/', and a '-' that stands beside another or beside '/' is escaped, so that no two texts become one.
static void add_plain(struct buf *out, const char *s)
{
    for (size_t i = 0; s[i]; i++) {
        char before = i ? s[i - 1] : 'x', after = s[i + 1] ? s[i + 1] : 'x';
        bool lone = s[i] == '-' && i && s[i + 1] && !strchr("-/", before) && !strchr("-/", after);
        if (s[i] == '/')
            buf_add_str(out, "--");
        else if (lone || (s[i] != '-' && strchr(name_bytes, s[i])))
            buf_add_char(out, s[i]);
        else
            buf_printf(out, "%%%02X", (unsigned char)s[i]);
    }
}

err_code modelref_folder(const struct modelref *r, char ret_folder[MODELREF_FOLDER], err *e)
{
    struct buf b;
    char quant[MODELREF_PART];
    size_t n = 0;
    for (; r->quant[n]; n++)
        quant[n] = (char)toupper((unsigned char)r->quant[n]);
    quant[n] = 0;
    buf_init(&b, MODELREF_FOLDER - 24);  // room for what names of the store put in front
    add_plain(&b, r->repo);
    if (*r->subdir) {
        buf_add_str(&b, "--");
        add_plain(&b, r->subdir);
    }
    if (*quant) {
        buf_add_char(&b, '+');
        add_plain(&b, quant);
    }
    if (*r->revision) {
        buf_add_char(&b, '@');
        add_plain(&b, r->revision);
    }
    err_code rc = ERR_OK;
    if (b.over)
        rc = err_set(e, ERR_TOO_LARGE, "'%.100s...': the reference is too long for the name of a folder", r->repo);
    else
        strcpy(ret_folder, b.data);
    buf_done(&b);
    return rc;
}
