// address.h - which network addresses are anybody's: those a download may connect to without being told so by name.
#pragma once

#include <stdbool.h>

struct sockaddr;

// Not public: "this" network, private, shared (carrier), loopback, link-local, benchmarking, documentation, multicast,
// reserved (RFC 6890, RFC 8190 and IANA's registries of special addresses); the same inside IPv4-mapped, NAT64 (RFC
// 6052) and 6to4 addresses; every family but IPv4 and IPv6.
bool address_public(const struct sockaddr *a);
bool address_link_local(const struct sockaddr *a);  // where clouds keep a machine's secrets; never private by mistake

// The address as text without a port, in out[64]; returns out.
const char *address_text(const struct sockaddr *a, char *out);
