/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What tests of the looks at the machine share: a machine of files in a folder, and findings with their words. */
#ifndef PREFLIGHT_PLAY_H
#define PREFLIGHT_PLAY_H

#include "gpu/preflight.h"

#include <errno.h>
#include <gpusys/nccl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char play_root[64];

/* ---- the machine ---- */

static inline void make_folders(const char *path)
{
    char part[GS_PATH_BYTES];
    for (const char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0755) && errno != EEXIST)
            fail_msg("%s: %s", part, strerror(errno));
    }
}

/* A file of the machine, with its folders. */
static inline void has_bytes(const char *path, const void *bytes, size_t size)
{
    char full[GS_PATH_BYTES];
    snprintf(full, sizeof full, "%s%s", play_root, path);
    make_folders(full);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void has(const char *path, const char *text)
{
    has_bytes(path, text, strlen(text));
}

static inline void has_link(const char *path, const char *target)
{
    char full[GS_PATH_BYTES];
    snprintf(full, sizeof full, "%s%s", play_root, path);
    make_folders(full);
    assert_int_equal(symlink(target, full), 0);
}

/* A PCI device below others ("0000:00:01.0/0000:01:00.0"), as sysfs has it. */
static inline void has_pci(const char *place, const char *vendor, const char *class)
{
    char path[GS_PATH_BYTES], target[GS_PATH_BYTES];
    const char *slash = strrchr(place, '/'), *address = slash ? slash + 1 : place;
    snprintf(path, sizeof path, "/sys/devices/pci0000:00/%s/vendor", place);
    has(path, vendor);
    snprintf(path, sizeof path, "/sys/devices/pci0000:00/%s/class", place);
    has(path, class);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s", address);
    snprintf(target, sizeof target, "../../../devices/pci0000:00/%s", place);
    has_link(path, target);
}

static inline void has_gpus(unsigned count)
{
    char path[64];
    for (unsigned i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%u", i);
        has(path, "");
    }
}

static inline void has_driver(void)
{
    has("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  "
                                       "Release Build  (x)\nGCC version\n");
}

/* ---- findings ---- */

static inline struct gpusys_finding look(const char *name)
{
    struct gpusys_finding finding = {.size = sizeof finding};
    assert_int_equal(gpusys_nccl_look(name, &finding), 0);
    assert_string_equal(finding.name, name);
    bool amiss = finding.verdict == GPUSYS_VERDICT_MISSING || finding.verdict == GPUSYS_VERDICT_BROKEN;
    assert_true(finding.evidence[0] != 0);
    assert_int_equal(finding.consequence[0] != 0, amiss);
    assert_int_equal(finding.fix[0] != 0, amiss);
    return finding;
}

static inline void found(const char *name, enum gpusys_verdict verdict, const char *evidence)
{
    struct gpusys_finding finding = look(name);
    assert_string_equal(finding.evidence, evidence);
    assert_int_equal(finding.verdict, verdict);
}

/* A part of the fix of the look. */
static inline void fixed_by(const char *name, const char *part)
{
    struct gpusys_finding finding = look(name);
    if (!strstr(finding.fix, part))
        fail_msg("\"%s\" is not in \"%s\"", part, finding.fix);
}

/* ---- every test has a machine of its own ---- */

static inline void clear_settings(void)
{
    static const char *const names[] = {"NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_IB_HCA",
                                        "NCCL_IB_DISABLE",    "NCCL_CONF_FILE",     "NCCL_DEBUG",
                                        "NCCL_P2P_DISABEL",   "LD_LIBRARY_PATH",    "VIRTUAL_ENV",
                                        "CONDA_PREFIX",       "NCCL_QUITE_OTHER",   "NCCL_FUTURE_SETTING"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static inline int new_machine(void **state)
{
    (void)state;
    snprintf(play_root, sizeof play_root, "/tmp/gpusys-preflight-XXXXXX");
    gs_preflight_root = mkdtemp(play_root);
    clear_settings();
    return gs_preflight_root ? 0 : -1;
}

static inline int old_machine(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", play_root);
    return system(command);
}

#define ON_A_MACHINE(test) cmocka_unit_test_setup_teardown(test, new_machine, old_machine)

#endif
