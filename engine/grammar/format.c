// format.c - a pattern for each format. What is admitted is a subset of what the format's definition admits wherever that
// is larger than what readers agree on (no leap seconds, no year 0, hosts of at most four labels).
#include "engine/grammar/format.h"

#include <string.h>

#include "engine/grammar/regex.h"

#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d{2}|00[1-9]\\d|000[1-9])"
#define LEAP_YEAR "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
    "02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,60}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,3}"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define IPV6 \
    "(?:(?:" H16 ":){7}" H16 "|(?:" H16 ":){6}:" H16 "|(?:" H16 ":){5}(?::" H16 "){1,2}|(?:" H16 ":){4}(?::" H16 "){1,3}|" \
    "(?:" H16 ":){3}(?::" H16 "){1,4}|(?:" H16 ":){2}(?::" H16 "){1,5}|" H16 ":(?::" H16 "){1,6}|:(?::" H16 "){1,7}|" \
    "(?:" H16 ":){1,7}:|::)"
#define PCT "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define QUERY "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define AUTHORITY \
    "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*@)?(?:\\[" IPV6 "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" PCT ")+)(?::\\d{1,5})?"
#define URI \
    "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR "+(?:/" PCHAR \
    "*)*)" QUERY
#define DURATION_TIME "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S)"
#define DURATION_DATE "(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:\\d{1,9}W|" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME ")"},
    {"email", ATOM "{1,20}(?:\\." ATOM "{1,20}){0,2}@" HOST},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"uri", URI},
    {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
};

static const char *const refused[] = {"idn-email", "idn-hostname", "iri", "iri-reference", "uri-reference", "uri-template",
                                      "relative-json-pointer", "regex"};

static const char *pattern_of(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].pattern;
    return NULL;
}

enum format_use format_find(const char *name)
{
    if (pattern_of(name))
        return FORMAT_ENFORCED;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i], name) == 0)
            return FORMAT_REFUSED;
    return FORMAT_ANNOTATION;
}

err_code format_compile(const char *name, struct chardfa_budget *b, struct chardfa **ret_dfa, err *e)
{
    const char *pattern = pattern_of(name);
    if (!pattern)
        return err_set(e, ERR_UNSUPPORTED, "the format '%s' is not enforced", name);
    return regex_compile(pattern, strlen(pattern), false, b, ret_dfa, e);
}
