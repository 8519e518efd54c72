/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A finding as text and as JSON. */
#include "doctor.h"
#include "output.h"

#include <string.h>

enum { NAME_COLUMNS = 18, TEXT_COLUMN = 32, LEAST_TEXT = 30, SAFE_BYTES = 256 * 4 };

/* The rest of a row: on a terminal it goes on in the same column, elsewhere it stays one line. */
static void print_text(const char *text)
{
    char safe[SAFE_BYTES];
    const char *at = output_safe(safe, sizeof safe, text);
    unsigned width = output_width(stdout);
    size_t room = width > TEXT_COLUMN + LEAST_TEXT ? width - TEXT_COLUMN : SIZE_MAX;
    while (strlen(at) > room) {
        size_t cut = room;
        while (cut && at[cut] != ' ')
            cut--;
        if (!cut)
            cut = strcspn(at, " ");
        if (!at[cut])
            break;
        printf("%.*s\n%*s", (int)cut, at, TEXT_COLUMN, "");
        at += cut + 1;
    }
    puts(at);
}

void doctor_print(const char *name, const struct doctor_finding *finding)
{
    static const enum output_colour colours[] = {COLOUR_GREEN, COLOUR_YELLOW, COLOUR_RED, COLOUR_DIM};
    printf("%s%-10s%s  %-*s  ", colour(stdout, colours[finding->verdict]),
           doctor_verdict_names[finding->verdict], colour(stdout, COLOUR_PLAIN), NAME_COLUMNS, name);
    print_text(finding->evidence);
    if (finding->consequence[0]) {
        printf("%12s%-*s  ", "", NAME_COLUMNS, "  so");
        print_text(finding->consequence);
    }
    if (finding->fix[0]) {
        printf("%12s%-*s  ", "", NAME_COLUMNS, "  fix");
        print_text(finding->fix);
    }
}

/* Text from outside need not be UTF-8, and JSON must be. */
static json_t *json_text(const char *text)
{
    char safe[SAFE_BYTES];
    return json_string(output_safe(safe, sizeof safe, text));
}

json_t *doctor_json(const char *name, const char *title, const struct doctor_finding *finding)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "name", name, "title", title, "verdict",
                     doctor_verdict_names[finding->verdict], "evidence", json_text(finding->evidence),
                     "consequence", json_text(finding->consequence), "fix", json_text(finding->fix));
}
