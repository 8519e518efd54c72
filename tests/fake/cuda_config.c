/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libcuda: what the environment says. */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long long number(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

/* The next item of a list, as a string of its own; NULL at the end. */
static const char *next_item(const char **list, char *item, size_t size)
{
    const char *at = *list;
    if (!at || !*at)
        return NULL;
    size_t length = strcspn(at, ",");
    snprintf(item, size, "%.*s", (int)length, at);
    *list = at + length + (at[length] == ',');
    return item;
}

/* ---- UUIDs ---- */

/* The hexadecimal digits after the last letter that is none, right-aligned. */
static void parse_uuid(const char *text, unsigned char uuid[16])
{
    char digits[33];
    size_t count = 0;
    const char *prefix = strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0 ? text + 4 : text;
    for (const char *at = prefix; *at && count < sizeof digits - 1; at++)
        if (strchr("0123456789abcdefABCDEF", *at))
            digits[count++] = *at;
    digits[count] = 0;
    memset(uuid, 0, 16);
    for (size_t i = 0; i < count; i++) {
        const char one[2] = {digits[count - 1 - i], 0};
        uuid[15 - i / 2] |= (unsigned char)(strtoul(one, NULL, 16) << (i % 2 ? 4 : 0));
    }
}

static void own_uuid(int device, unsigned char uuid[16])
{
    uint32_t pid = (uint32_t)getpid();
    memset(uuid, 0xfa, 16);
    memcpy(uuid + 4, &pid, sizeof pid);
    uuid[15] = (unsigned char)device;
}

/* ---- devices ---- */

static void all_devices(struct config *config, struct device devices[DEVICES])
{
    const char *uuids = getenv("FAKE_CUDA_UUIDS");
    char item[64];
    unsigned long long count = number("FAKE_CUDA_DEVICES", 1);
    config->n_devices = count < DEVICES ? (int)count : DEVICES;
    for (int i = 0; i < config->n_devices; i++) {
        devices[i].number = i;
        if (next_item(&uuids, item, sizeof item))
            parse_uuid(item, devices[i].uuid);
        else
            own_uuid(i, devices[i].uuid);
    }
}

/* The first number that is none ends the list. */
static void visible_devices(struct config *config, const struct device devices[DEVICES])
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int total = config->n_devices;
    char item[64];
    if (!visible) {
        memcpy(config->devices, devices, sizeof config->devices);
        return;
    }
    config->n_devices = 0;
    while (next_item(&visible, item, sizeof item) && config->n_devices < DEVICES) {
        char *end;
        long wanted = strtol(item, &end, 10);
        if (end == item || *end || wanted < 0 || wanted >= total)
            return;
        config->devices[config->n_devices++] = devices[wanted];
    }
}

static void parse_overrides(struct config *config, const char *list)
{
    char item[64];
    while (config->n_overrides < OVERRIDES && next_item(&list, item, sizeof item)) {
        char *end;
        unsigned attribute = (unsigned)strtoul(item, &end, 10);
        if (*end++ != '=')
            continue;
        config->overrides[config->n_overrides++] =
            (struct override){attribute, atoi(end), strcmp(end, "-") != 0};
    }
}

void fake_config_read(struct config *config)
{
    struct device devices[DEVICES] = {0};
    const char *name = getenv("FAKE_CUDA_NAME");
    *config = (struct config){.pid = getpid()};
    all_devices(config, devices);
    visible_devices(config, devices);
    snprintf(config->name, sizeof config->name, "%s", name ? name : "Fake GPU");
    config->memory = number("FAKE_CUDA_MEMORY", 16ull << 30);
    config->version = (int)number("FAKE_CUDA_VERSION", 13000);
    config->delay_us = number("FAKE_CUDA_DELAY_US", 0);
    parse_overrides(config, getenv("FAKE_CUDA_ATTRIBUTES"));
}

/* ---- rules ---- */

unsigned fake_rules_parse(const char *text, struct rule rules[RULES])
{
    char item[96];
    unsigned count = 0;
    while (count < RULES && next_item(&text, item, sizeof item)) {
        struct rule rule = {.first = 1, .last = UINT64_MAX};
        char *equals = strchr(item, '='), *end;
        if (!equals)
            continue;
        snprintf(rule.function, sizeof rule.function, "%.*s", (int)(equals - item), item);
        rule.result = (unsigned)strtoul(equals + 1, &end, 10);
        if (*end == '@') {
            rule.first = rule.last = strtoull(end + 1, &end, 10);
            if (*end == '+')
                rule.last = UINT64_MAX;
        }
        rules[count++] = rule;
    }
    return count;
}
