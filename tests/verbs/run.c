/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Run the table of call sequences over a libibverbs and one of its devices:
 *   verbs-sequences [-l LIBRARY] [-d DEVICE] [-o NAME]
 * The device's two queue pairs face each other. Output is TAP; the exit status is 0 where every row is as expected, 77
 * where there is no device.
 */
#include "sequences.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct settings {
    const char *library, *device, *only;
};

static void run_steps(struct world *world, const char *steps, char *ret_step, size_t step_size)
{
    char *copy = strdup(steps), *at = NULL;
    for (char *step = strtok_r(copy, ";", &at); step && !world->fault[0]; step = strtok_r(NULL, ";", &at)) {
        step += strspn(step, " \n");
        snprintf(ret_step, step_size, "%s", step);
        if (strcmp(step, "standard") == 0 && world->is_rxe)
            break; /* the rest is not what Soft-RoCE does */
        if (strcmp(step, "standard"))
            world_step(world, step);
    }
    free(copy);
}

static bool run_row(const struct world *model, const struct sequence *row, size_t number)
{
    struct world world = *model;
    char step[200] = "";
    world_open(&world);
    if (!world.fault[0])
        run_steps(&world, row->steps, step, sizeof step);
    bool has_failed = world.fault[0];
    world_close(&world);
    printf("%s %zu - %s\n", world.fault[0] ? "not ok" : "ok", number, row->name);
    if (world.fault[0])
        printf("# %s: %s\n", has_failed ? step : "end", world.fault);
    if (world.is_rxe && row->departs)
        printf("# Soft-RoCE departs: %s\n", row->departs);
    fflush(stdout);
    return !world.fault[0];
}

static struct ibv_device *find_device(const struct verbs *verbs, struct ibv_device **list, const char *name)
{
    for (; list && *list; list++)
        if (!name || strcmp(verbs->get_device_name(*list), name) == 0)
            return *list;
    return NULL;
}

static int run_table(struct world *world, const char *only)
{
    size_t failed = 0;
    printf("1..%zu\n", n_sequences);
    for (size_t i = 0; i < n_sequences; i++)
        if (!only || strstr(sequences[i].name, only))
            failed += !run_row(world, &sequences[i], i + 1);
    printf("# %zu of %zu rows failed on %s\n", failed, n_sequences,
           world->verbs->get_device_name(world->device));
    return failed ? 1 : 0;
}

static bool read_arguments(int argc, char **argv, struct settings *settings)
{
    for (int option; (option = getopt(argc, argv, "l:d:o:")) != -1;)
        switch (option) {
        case 'l': settings->library = optarg; break;
        case 'd': settings->device = optarg; break;
        case 'o': settings->only = optarg; break;
        default: return false;
        }
    return optind == argc;
}

int main(int argc, char **argv)
{
    struct settings settings = {NULL, NULL, NULL};
    struct verbs verbs;
    if (!read_arguments(argc, argv, &settings)) {
        fprintf(stderr, "usage: verbs-sequences [-l LIBRARY] [-d DEVICE] [-o NAME]\n");
        return 2;
    }
    if (!verbs_load(&verbs, settings.library))
        return 77;
    struct ibv_device **list = verbs.get_device_list(NULL);
    struct world world = {.verbs = &verbs, .device = find_device(&verbs, list, settings.device)};
    if (!world.device) {
        fprintf(stderr, "no device%s%s\n", settings.device ? " " : "",
                settings.device ? settings.device : "");
        return 77;
    }
    world.is_rxe = strncmp(verbs.get_device_name(world.device), "rxe", 3) == 0;
    int code = run_table(&world, settings.only);
    verbs.free_device_list(list);
    return code;
}
