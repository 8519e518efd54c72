/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The look at NCCL's settings: a name that it does not know has no effect, and it says nothing about that. */
#include "gpu/preflight.h"

#include <gpusys/nccl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct settings {
    struct gs_names known, unknown;
    char meant[96]; /* instead of the first unknown one */
    char first[96]; /* the first unknown one */
    const char *library;
};

/* A library newer than our table may know more. */
static bool is_known(const struct settings *settings, const char *name)
{
    return gs_nccl_name(name) != GS_NAME_UNKNOWN ||
           (settings->library && gs_file_has_string(settings->library, name) == 0);
}

static bool judge_setting(void *context, const char *name, const char *value, const char *source)
{
    struct settings *settings = context;
    const char *behind = source[0] ? " in " : "";
    if (is_known(settings, name)) {
        gs_name_add(&settings->known, " ", "%s=%.60s%s%s", name, value, behind, source);
        return true;
    }
    const char *near = gs_nccl_name_near(name);
    if (!settings->unknown.count) {
        snprintf(settings->first, sizeof settings->first, "%s", name);
        snprintf(settings->meant, sizeof settings->meant, "%s", near ? near : "");
    }
    gs_name_add(&settings->unknown, ", ", "%s=%.40s%s%s", name, value, behind, source);
    return true;
}

/* Files that are there and have been read, whether they set anything or not. */
static struct gs_names files_there(void)
{
    struct gs_names files = {.count = 0};
    char path[GS_PATH_BYTES];
    FILE *file;
    for (unsigned at = 0; gs_nccl_conf_file(at, path); at++)
        if ((file = gs_nccl_conf_open(path))) {
            gs_name_add(&files, " ", "%s", path);
            fclose(file);
        } else if (access(path, F_OK) == 0) {
            gs_name_add(&files, " ", "%s (not a small file that can be read)", path);
        }
    return files;
}

static void judge_names(struct gpusys_finding *finding, const struct settings *settings)
{
    gs_found(finding, GPUSYS_VERDICT_MISSING, "NCCL does not know %s", settings->unknown.text);
    if (settings->meant[0])
        gs_so(finding, "the setting has no effect, and NCCL does not say so",
              "did you mean NCCL_%s? rename %s, or unset it", settings->meant, settings->first);
    else
        gs_so(finding, "the setting has no effect, and NCCL does not say so",
              "unset %s, or correct its name: gpusys knows NCCL's names up to 2.32", settings->first);
}

void gs_look_environment(struct gpusys_finding *finding)
{
    const struct gpusys_nccl *nccl;
    char named[GS_SETTING_BYTES];
    struct settings settings = {.library = NULL};
    if (gpusys_nccl_table(&nccl, NULL) == 0)
        settings.library = gpusys_nccl_library();
    gs_nccl_settings(judge_setting, &settings);
    struct gs_names files = files_there();
    if (settings.unknown.count) {
        judge_names(finding, &settings);
    } else if (gs_nccl_setting("NCCL_CONF_FILE", named, NULL) && named[0] && !gs_exists("%s", named)) {
        gs_found(finding, GPUSYS_VERDICT_MISSING, "NCCL_CONF_FILE=%.120s: there is no such file", named);
        gs_so(finding, "NCCL goes on without its settings, and does not say so",
              "correct NCCL_CONF_FILE, or unset it");
    } else {
        gs_found(finding, GPUSYS_VERDICT_OK, "%s%s%s",
                 settings.known.count ? settings.known.text : "no NCCL_ name is set",
                 files.count ? "; read: " : "; no configuration file", files.text);
    }
}
