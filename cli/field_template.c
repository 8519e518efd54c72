/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The files of an expert peer's layers, by the template in its header. */
#include "field.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A template taken apart: BEFORE, a number of at least `width` digits, AFTER. */
struct template
{
    const char *before, *after;
    int n_before, width;
    bool model_layer; /* the number is the model's, not ours */
};

int field_number(const json_t *object, const char *what, const char *key, uint64_t most, uint64_t *ret_value,
                 struct gpusys_error *error)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > most)
        return gpusys_error_set(error, -EBADMSG, "%s is damaged: \"%s\" is no number of 0 to %llu", what, key,
                                (unsigned long long)most);
    *ret_value = (uint64_t)json_integer_value(value);
    return 0;
}

/* Digits at `at`; more than two are no width. */
static const char *take_width(const char *at, int *ret_width)
{
    *ret_width = 0;
    for (int i = 0; i < 3 && isdigit((unsigned char)*at); i++)
        *ret_width = *ret_width * 10 + (*at++ - '0');
    return at;
}

static bool take_braces(struct template *template, const char *open)
{
    static const char *const names[] = {"", "layer", "moe_layer", "model_layer"};
    size_t length = strcspn(open + 1, ":}");
    const char *at = open + 1 + length;
    bool known = false;
    for (int i = 0; i < 4 && !known; i++) {
        known = strlen(names[i]) == length && strncmp(names[i], open + 1, length) == 0;
        template->model_layer = i == 3;
    }
    if (*at == ':')
        at = take_width(at + 1, &template->width);
    if (*at == 'd')
        at++;
    template->after = at + 1;
    return known && *at == '}' && template->width <= 20;
}

static bool take_percent(struct template *template, const char *percent)
{
    const char *at = take_width(percent + 1, &template->width);
    template->after = at + 1;
    return (*at == 'd' || *at == 'u') && template->width <= 20;
}

/* Exactly one placeholder. */
static bool take_apart(struct template *template, const char *text)
{
    const char *at = text + strcspn(text, "{%");
    *template = (struct template){.before = text, .n_before = (int)(at - text)};
    if (!*at || !(*at == '{' ? take_braces(template, at) : take_percent(template, at)))
        return false;
    return template->after[strcspn(template->after, "{}%")] == 0;
}

static int layer_number(const json_t *header, const struct template *template, uint32_t layer,
                        uint64_t *ret_number, struct gpusys_error *error)
{
    const json_t *entry = json_array_get(json_object_get(header, "moe_layer_to_model_layer"), layer);
    *ret_number = layer;
    if (!template->model_layer)
        return 0;
    if (!json_is_integer(entry) || json_integer_value(entry) < 0)
        return gpusys_error_set(error, -EBADMSG,
                                "the header is damaged: moe_layer_to_model_layer has no number for layer %u",
                                layer);
    *ret_number = (uint64_t)json_integer_value(entry);
    return 0;
}

static int make_name(const json_t *header, const struct template *template, uint32_t layer, char **ret_name,
                     struct gpusys_error *error)
{
    uint64_t number;
    int code = layer_number(header, template, layer, &number, error);
    if (code)
        return code;
    if (asprintf(ret_name, "%.*s%0*llu%s", template->n_before, template->before, template->width,
                 (unsigned long long)number, template->after) < 0) {
        *ret_name = NULL;
        return gpusys_error_set(error, -ENOMEM, "out of memory");
    }
    return gpusys_name_check(*ret_name, error);
}

char **field_template_names(const json_t *header, uint32_t n_layers, int *ret_code,
                            struct gpusys_error *error)
{
    const char *text = json_string_value(json_object_get(header, "file_template"));
    struct template template;
    *ret_code = 0;
    if (!text)
        return NULL;
    if (!take_apart(&template, text)) {
        *ret_code = gpusys_error_set(
            error, -EBADMSG, "the header's file_template \"%.100s\" has no placeholder that is understood",
            text);
        return NULL;
    }
    char **names = calloc(n_layers, sizeof *names);
    if (!names)
        *ret_code = gpusys_error_set(error, -ENOMEM, "out of memory");
    for (uint32_t i = 0; names && i < n_layers && !*ret_code; i++)
        *ret_code = make_name(header, &template, i, &names[i], error);
    if (!*ret_code)
        return names;
    field_names_free(names, n_layers);
    return NULL;
}
