// Keys, Host and Origin. Pure functions on the configuration; any thread.
#include "server/auth.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

// Reads all of secret whatever differs where.
static bool equal_constant_time(const char *given, const char *secret)
{
    size_t n = strlen(given), m = strlen(secret);
    volatile unsigned char diff = n != m;
    for (size_t i = 0; i < m; i++)
        diff = (unsigned char)(diff | (secret[i] ^ (n ? given[i % n] : 1)));
    return diff == 0;
}

err_code auth_check(const struct auth *a, err *e)
{
    for (int i = 0; i < a->nkeys; i++)
        if (!a->keys[i] || !*a->keys[i])
            return err_set_param(e, ERR_INVALID, "api_key", "API key %d is empty.", i + 1);
    return ERR_OK;
}

int auth_find_key(const struct auth *a, const char *key)
{
    int found = -1;
    for (int i = 0; i < a->nkeys; i++)
        if (equal_constant_time(key, a->keys[i]))
            found = i;
    return found;
}

const char *auth_bearer(const char *authorization)
{
    if (strncasecmp(authorization, "Bearer", 6) || (authorization[6] != ' ' && authorization[6]))
        return NULL;
    return authorization + 6 + strspn(authorization + 6, " ");
}

// Letters, digits, dots, hyphens, underscores, and the colons of an IPv6 address: nothing else is in a host's name.
static bool is_host_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !memchr(".-_:", s[i], 4))
            return false;
    return n > 0;
}

bool auth_is_loopback(const char *host, size_t n)
{
    char text[64];
    if (n >= sizeof text || !is_host_text(host, n))
        return false;
    memcpy(text, host, n);
    text[n] = 0;
    if (text[n - 1] == '.')
        text[--n] = 0;
    if (!strcasecmp(text, "localhost") || (n > 10 && !strcasecmp(text + n - 10, ".localhost")))
        return true;
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, text, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

// Splits "name:port", "[v6]:port"; false when what follows the name is no port.
static bool split_host(const char *host, const char **ret_name, size_t *ret_len)
{
    const char *name = host, *end;
    if (*host == '[') {
        name = host + 1;
        end = strchr(name, ']');
        if (!end)
            return false;
        *ret_len = (size_t)(end - name);
        end++;
    } else {
        end = host + strcspn(host, ":");
        *ret_len = (size_t)(end - name);
    }
    *ret_name = name;
    return !*end || (*end == ':' && strspn(end + 1, "0123456789") == strlen(end + 1));
}

bool auth_host_ok(const struct auth *a, const char *host)
{
    const char *name;
    size_t n;
    if (!split_host(host, &name, &n))
        return false;
    if (auth_is_loopback(name, n))
        return true;
    for (int i = 0; i < a->nhosts; i++)
        if (!strcmp(a->hosts[i], "*") || (strlen(a->hosts[i]) == n && !strncasecmp(a->hosts[i], name, n)))
            return true;
    return false;
}

bool auth_origin_ok(const struct auth *a, const char *origin)
{
    for (int i = 0; i < a->norigins; i++)
        if (!strcmp(a->origins[i], "*") || !strcasecmp(a->origins[i], origin))
            return true;
    return false;
}
