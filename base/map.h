// map.h - hash map from byte strings to 32-bit numbers (a vocabulary, a set of names).
//
// Keys are copied. Hashing is keyed by a random number of the process, so a file cannot choose colliding keys.
// Reading from several threads is safe while nobody writes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map;

struct map *map_new(size_t expected);
void map_free(struct map *m);

// Adds or replaces. Returns true when the key was new.
bool map_put(struct map *m, const char *key, size_t len, uint32_t value);
bool map_get(const struct map *m, const char *key, size_t len, uint32_t *ret_value);

// Keyed hash of a byte string; stable within one process only.
uint64_t map_hash(const void *key, size_t len);
