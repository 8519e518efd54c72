/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The nearest of a list of words to one that was mistyped. */
#include "options.h"

#include <string.h>

enum { MOST_LETTERS = 32 };

static unsigned least(unsigned a, unsigned b, unsigned c)
{
    unsigned low = a < b ? a : b;
    return low < c ? low : c;
}

/* How many letters to insert, drop or replace (Levenshtein), over words that fit one row. */
static unsigned distance(const char *from, size_t n_from, const char *to, size_t n_to)
{
    unsigned row[MOST_LETTERS + 1];
    for (size_t j = 0; j <= n_to; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n_from; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n_to; j++) {
            unsigned above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, diagonal + (from[i - 1] != to[j - 1]));
            diagonal = above;
        }
    }
    return row[n_to];
}

const char *near_miss(const char *word, const char *const *candidates, size_t n_candidates)
{
    size_t n_word = strlen(word);
    const char *best = NULL;
    unsigned best_distance = n_word < 4 ? 2 : 3; /* a candidate must be nearer than this */
    for (size_t i = 0; i < n_candidates; i++) {
        size_t length = strlen(candidates[i]);
        if (n_word == 0 || n_word > MOST_LETTERS || length > MOST_LETTERS)
            continue;
        unsigned away = distance(word, n_word, candidates[i], length);
        bool begins = n_word >= 3 && strncmp(candidates[i], word, n_word) == 0;
        if (begins)
            away = 1;
        if (away < best_distance) {
            best_distance = away;
            best = candidates[i];
        }
    }
    return best;
}
