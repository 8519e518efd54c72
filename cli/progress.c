/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "progress.h"
#include "output.h"
#include "quantity.h"

#include <gpusys/deadline.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MIN_BAR = 10, MAX_BAR = 40, MIN_NAME = 12, MAX_NAME = 48 };
enum { ECHO_COLUMNS = 2 }; /* left free for the terminal's "^C", which would break the line in two */

static const int64_t interval_ns = 100000000;

void progress_start(struct progress *ret_progress, uint64_t total_bytes, bool wanted)
{
    *ret_progress = (struct progress){.shown = wanted && output_width(stderr) > 0,
                                      .total_bytes = total_bytes,
                                      .drawn_ns = gpusys_now_ns(),
                                      .name = ""};
}

static const char *time_left(const struct progress *progress, char text[QUANTITY_BYTES])
{
    double left =
        progress->rate > 0 ? (double)(progress->total_bytes - progress->done_bytes) / progress->rate : -1;
    if (left < 0 || left > 359999)
        snprintf(text, QUANTITY_BYTES, "--:-- left");
    else if (left < 3600)
        snprintf(text, QUANTITY_BYTES, "%2d:%02d left", (int)left / 60, (int)left % 60);
    else
        snprintf(text, QUANTITY_BYTES, "%d:%02d:%02d left", (int)left / 3600, (int)left / 60 % 60,
                 (int)left % 60);
    return text;
}

static unsigned share(const struct progress *progress, unsigned of)
{
    if (progress->total_bytes == 0)
        return of;
    return (unsigned)((double)progress->done_bytes / (double)progress->total_bytes * of);
}

static void append_bar(char *line, const struct progress *progress, unsigned cells)
{
    char bar[MAX_BAR + 1];
    memset(bar, '.', cells);
    memset(bar, '#', share(progress, cells));
    bar[cells] = 0;
    sprintf(line + strlen(line), "[%s] ", bar);
}

/* Columns that UTF-8 text takes, near enough: one a character. */
static unsigned columns_of(const char *text)
{
    unsigned columns = 0;
    for (; *text; ++text)
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

/* The end of a long name says more than its beginning. */
static void append_name(char *line, const char *name, unsigned columns)
{
    char safe[PROGRESS_BYTES / 2];
    const char *shown = output_safe(safe, sizeof safe, name);
    unsigned has = columns_of(shown);
    if (has > columns) {
        for (unsigned drop = has - columns + 2; drop > 0 || ((unsigned char)*shown & 0xc0) == 0x80; ++shown)
            drop -= ((unsigned char)*shown & 0xc0) != 0x80;
        sprintf(line + strlen(line), "..%s ", shown);
        return;
    }
    sprintf(line + strlen(line), "%s%*s ", shown, (int)(columns - has), "");
}

const char *progress_line(const struct progress *progress, unsigned width, char line[PROGRESS_BYTES])
{
    char facts[128], done[QUANTITY_BYTES], total[QUANTITY_BYTES], rate[QUANTITY_BYTES], left[QUANTITY_BYTES];
    snprintf(facts, sizeof facts, "%3u%%  %8s of %s  %9s  %s", share(progress, 100),
             quantity_of_bytes(done, progress->done_bytes), quantity_of_bytes(total, progress->total_bytes),
             quantity_of_rate(rate, progress->rate), time_left(progress, left));
    unsigned used = columns_of(facts), room = width > used + 1 ? width - used - 1 : 0;
    line[0] = 0;
    unsigned bar = room > 2 * MAX_BAR ? MAX_BAR : room / 2;
    if (bar < MIN_BAR + 3)
        bar = room < MIN_BAR + 3 ? 0 : room < MAX_BAR ? room : MAX_BAR;
    unsigned name = room - bar;
    if (name > MIN_NAME)
        append_name(line, progress->name, name - 1 < MAX_NAME ? name - 1 : MAX_NAME);
    if (bar > 3)
        append_bar(line, progress, bar - 3);
    size_t length = strlen(line);
    snprintf(line + length, PROGRESS_BYTES - length, "%.*s", (int)(width > 1 ? width - 1 : 0), facts);
    return line;
}

static void draw(struct progress *progress, int64_t now)
{
    char line[PROGRESS_BYTES];
    double seconds = (double)(now - progress->drawn_ns) / 1e9;
    double rate = (double)(progress->done_bytes - progress->last_done) / seconds;
    double weight = progress->rate > 0 ? seconds / (seconds + 2) : 1;
    progress->rate += (rate - progress->rate) * weight;
    progress->last_done = progress->done_bytes;
    progress->drawn_ns = now;
    progress->drawn = true;
    unsigned width = output_width(stderr);
    unsigned margin = width > ECHO_COLUMNS ? ECHO_COLUMNS : 0;
    fprintf(stderr, "\r%s\033[K", progress_line(progress, width - margin, line));
    fflush(stderr);
}

void progress_refresh(struct progress *progress)
{
    if (!progress->shown)
        return;
    int64_t now = gpusys_now_ns();
    if (now - progress->drawn_ns >= interval_ns)
        draw(progress, now);
}

void progress_add(struct progress *progress, uint64_t bytes, const char *name)
{
    progress->done_bytes += bytes;
    progress->name = name;
    progress_refresh(progress);
}

void progress_skip(struct progress *progress, uint64_t bytes)
{
    progress->total_bytes -= bytes;
    progress_refresh(progress);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->drawn = progress->shown = false;
}
