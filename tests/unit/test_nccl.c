/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The binding of NCCL over the stand-ins of its versions: names, versions, the config as every version reads it, loading,
 * and functions that are missing. What loads does so in a process of its own.
 */
#include "golden/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gpusys/nccl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static char good[512], folder[512]; /* the stand-in of the newest version, and where the others lie */

/* ---- names and versions ---- */

static void types_have_names_and_sizes(void **state)
{
    (void)state;
    static const char *const names[] = {"int8",    "uint8",    "int32",      "uint32",
                                        "int64",   "uint64",   "float16",    "float32",
                                        "float64", "bfloat16", "float8e4m3", "float8e5m2"};
    static const uint32_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    assert_int_equal(COUNT_OF(names), GPUSYS_NCCL_TYPES);
    for (int type = 0; type < GPUSYS_NCCL_TYPES; type++) {
        assert_string_equal(gpusys_nccl_type_name(type), names[type]);
        assert_int_equal(gpusys_nccl_type_bytes(type), bytes[type]);
    }
    static const int wrong[] = {-1, GPUSYS_NCCL_TYPES, INT_MAX, INT_MIN};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_string_equal(gpusys_nccl_type_name(wrong[i]), "unknown");
        assert_int_equal(gpusys_nccl_type_bytes(wrong[i]), 0);
    }
}

static void operators_and_results_have_names(void **state)
{
    (void)state;
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};
    for (int op = 0; op < GPUSYS_NCCL_OPS; op++)
        assert_string_equal(gpusys_nccl_op_name(op), ops[op]);
    assert_string_equal(gpusys_nccl_op_name(GPUSYS_NCCL_OPS), "custom");
    assert_string_equal(gpusys_nccl_op_name(INT_MAX), "custom");
    assert_string_equal(gpusys_nccl_op_name(-1), "unknown");
    assert_string_equal(gpusys_nccl_result_name(GPUSYS_NCCL_SUCCESS), "success");
    assert_string_equal(gpusys_nccl_result_name(GPUSYS_NCCL_UNHANDLED_CUDA_ERROR), "unhandled CUDA error");
    assert_string_equal(gpusys_nccl_result_name(GPUSYS_NCCL_SYSTEM_ERROR), "system error");
    assert_string_equal(gpusys_nccl_result_name(GPUSYS_NCCL_INTERNAL_ERROR), "internal error");
    assert_string_equal(gpusys_nccl_result_name(GPUSYS_NCCL_INVALID_ARGUMENT), "invalid argument");
    assert_string_equal(gpusys_nccl_result_name(GPUSYS_NCCL_INVALID_USAGE), "invalid usage");
    assert_string_equal(gpusys_nccl_result_name(GPUSYS_NCCL_REMOTE_ERROR), "remote error");
    assert_string_equal(gpusys_nccl_result_name(GPUSYS_NCCL_IN_PROGRESS), "in progress");
    assert_string_equal(gpusys_nccl_result_name(GPUSYS_NCCL_TIMEOUT), "timeout");
    assert_string_equal(gpusys_nccl_result_name(9), "unknown");
    assert_string_equal(gpusys_nccl_result_name(-1), "unknown");
}

static void versions_come_apart(void **state)
{
    (void)state;
    static const int rows[][4] = {{2408, 2, 4, 8},   {2708, 2, 7, 8},   {2804, 2, 8, 4},
                                  {20908, 2, 9, 8},  {21003, 2, 10, 3}, {22809, 2, 28, 9},
                                  {23203, 2, 32, 3}, {30000, 3, 0, 0},  {0, 0, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int major = -1, minor = -1, patch = -1;
        gpusys_nccl_version_parts(rows[i][0], &major, &minor, &patch);
        assert_int_equal(major, rows[i][1]);
        assert_int_equal(minor, rows[i][2]);
        assert_int_equal(patch, rows[i][3]);
    }
}

/* ---- the config ---- */

struct field {
    const char *name;
    size_t offset, bytes, expected_offset, expected_bytes;
    int since;
};
#define FIELD_ROW(theirs, ours, at, size, first)                                                             \
    {                                                                                                        \
        #ours,                                                                                               \
        offsetof(struct gpusys_nccl_config, ours),                                                           \
        sizeof((struct gpusys_nccl_config *)0)->ours,                                                        \
        at,                                                                                                  \
        size,                                                                                                \
        first},
static const struct field fields[] = {NCCL_GOLDEN_FIELDS(FIELD_ROW)};

#define LAYOUT_ROW(version, size, count) {version, size, count},
static const int layouts[][3] = {NCCL_GOLDEN_LAYOUTS(LAYOUT_ROW)};

/* What a library that knows `count` fields reads in them. */
static void assert_readable(const struct gpusys_nccl_config *config, size_t count)
{
    assert_true(config->magic == 0xcafebeef);
    assert_true(config->blocking == 0 || config->blocking == 1);
    for (size_t i = 4; i < count; i++) {
        int64_t value = 0;
        memcpy(&value, (const char *)config + fields[i].offset, fields[i].bytes);
        if (fields[i].bytes == sizeof(int))
            assert_int_equal((int)value, INT_MIN);
        else
            assert_int_equal(value, 0); /* a pointer */
    }
}

static void the_config_serves_every_version(void **state)
{
    (void)state;
    struct gpusys_nccl_config config;
    memset(&config, 0x5a, sizeof config);
    gpusys_nccl_config_init(&config);
    assert_int_equal(config.size, sizeof config);
    assert_int_equal(config.blocking, 1);
    assert_int_equal(config.reserved, 0);
    int newest = 0;
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        assert_true(config.size >= (size_t)layouts[i][1]); /* a library copies the smaller of the two sizes */
        assert_readable(&config, (size_t)layouts[i][2]);
        newest = layouts[i][0];
    }
    /* Who is newer tells by the version which fields cannot be ours. */
    assert_int_equal(config.version, newest);
    assert_int_equal(COUNT_OF(fields), layouts[COUNT_OF(layouts) - 1][2]);
    assert_int_equal(sizeof config, layouts[COUNT_OF(layouts) - 1][1]);
}

static void the_config_lies_as_theirs(void **state)
{
    (void)state;
    size_t end = 0;
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        assert_int_equal(fields[i].offset, fields[i].expected_offset);
        assert_int_equal(fields[i].bytes, fields[i].expected_bytes);
        assert_int_equal(fields[i].offset, end); /* nothing between them */
        end = fields[i].offset + fields[i].bytes;
    }
    assert_int_equal(offsetof(struct gpusys_nccl_config, reserved), end);
    for (size_t i = 0; i < COUNT_OF(layouts); i++)
        for (int at = 0; at < layouts[i][2]; at++)
            assert_true(fields[at].since <= layouts[i][0]);
}

static void the_sim_info_is_unset(void **state)
{
    (void)state;
    struct gpusys_nccl_sim_info info;
    gpusys_nccl_sim_info_init(&info);
    assert_int_equal(info.size, 24);
    assert_true(info.magic == 0x74685283);
    assert_int_equal(info.version, layouts[COUNT_OF(layouts) - 1][0]);
    assert_true(info.estimated_time == -1.0f);
}

/* ---- loading: cases in processes of their own ---- */

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                                  \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

static int loads_once(void)
{
    const struct gpusys_nccl *nccl = NULL, *again = NULL;
    struct gpusys_error error = {.code = 77};
    char list[1024] = "x";
    int version = 0;
    EXPECT(!gpusys_nccl_library() && !gpusys_nccl_reused());
    EXPECT(gpusys_nccl_copies(list, sizeof list) == 0 && !list[0] && gpusys_nccl_copies(NULL, 0) == 0);
    EXPECT(gpusys_nccl_table(&nccl, &error) == 0 && error.code == 77);
    EXPECT(nccl->size == sizeof *nccl);
    EXPECT(gpusys_nccl_table(&again, NULL) == 0 && again == nccl);
    EXPECT(gpusys_nccl_version(&version, &error) == 0 && version == 23203);
    char *path = realpath(good, NULL);
    EXPECT(path && strcmp(gpusys_nccl_library(), path) == 0);
    EXPECT(!gpusys_nccl_reused());
    EXPECT(gpusys_nccl_copies(list, sizeof list) == 1 && strcmp(list, path) == 0);
    free(path);
    return 0;
}

static int reuses_what_is_there(void)
{
    EXPECT(dlopen(good, RTLD_NOW));
    EXPECT(gpusys_nccl_table(&(const struct gpusys_nccl *){NULL}, NULL) == 0);
    EXPECT(gpusys_nccl_reused());
    return 0;
}

static bool copy_file(const char *from, const char *to)
{
    struct stat status;
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    bool copied = in >= 0 && out >= 0 && fstat(in, &status) == 0;
    for (off_t left = copied ? status.st_size : 0; left > 0 && copied;) {
        ssize_t moved = sendfile(out, in, NULL, (size_t)left);
        copied = moved > 0;
        left -= moved;
    }
    close(in);
    close(out);
    return copied;
}

static int lists_every_copy(void)
{
    char place[] = "/tmp/gpusys-nccl-XXXXXX", other[64], list[1024];
    EXPECT(mkdtemp(place));
    snprintf(other, sizeof other, "%s/libnccl.so.2", place);
    bool copied = copy_file(good, other);
    void *theirs = copied ? dlopen(other, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(other); /* it is listed all the same */
    rmdir(place);
    EXPECT(theirs);
    EXPECT(gpusys_nccl_table(&(const struct gpusys_nccl *){NULL}, NULL) == 0);
    EXPECT(gpusys_nccl_copies(list, sizeof list) == 2);
    EXPECT(strstr(list, other) && strstr(list, gpusys_nccl_library()));
    return 0;
}

static int no_library(void)
{
    struct gpusys_error error = {.code = 0};
    const struct gpusys_nccl *nccl = NULL;
    struct gpusys_nccl_symbol symbol = {.size = sizeof symbol};
    int version = 7;
    setenv("GPUSYS_LIBNCCL", "/nowhere/libnccl.so.2", 1);
    EXPECT(gpusys_nccl_table(&nccl, &error) == -ENOENT && !nccl);
    EXPECT(strstr(error.message, "NCCL: not found: /nowhere/libnccl.so.2, which GPUSYS_LIBNCCL names"));
    EXPECT(gpusys_nccl_version(&version, &error) == -ENOENT && version == 7);
    EXPECT(gpusys_nccl_missing("ncclSend", &error) == -ENOENT);
    EXPECT(gpusys_nccl_symbol(0, &symbol, &error) == -ENOENT && !symbol.name);
    EXPECT(!gpusys_nccl_library());
    EXPECT(gpusys_nccl_error(GPUSYS_NCCL_REMOTE_ERROR, "ncclSend", NULL, &error) == -EIO);
    EXPECT(strcmp(error.message, "ncclSend: remote error") == 0 && !error.detail[0]);
    setenv("GPUSYS_LIBNCCL", good, 1); /* installed meanwhile */
    EXPECT(gpusys_nccl_table(&nccl, &error) == 0 && nccl);
    return 0;
}

static int another_library(void)
{
    struct gpusys_error error = {.code = 0};
    Dl_info info;
    EXPECT(dladdr((void *)(uintptr_t)&strtol, &info));
    setenv("GPUSYS_LIBNCCL", info.dli_fname, 1);
    EXPECT(gpusys_nccl_table(&(const struct gpusys_nccl *){NULL}, &error) == -ENOSYS);
    EXPECT(strstr(error.message, "has no ncclGetVersion"));
    EXPECT(strstr(error.hint, "libnccl2") && strstr(error.hint, "nvidia-nccl-cu12"));
    EXPECT(strstr(error.hint, "GPUSYS_LIBNCCL"));
    return 0;
}

static int a_version_that_is_not_told(void)
{
    struct gpusys_error error = {.code = 0};
    int version = 7;
    setenv("FAKE_NCCL_FAIL", "ncclGetVersion=3", 1);
    EXPECT(gpusys_nccl_version(&version, &error) == -EPROTO && version == 7);
    EXPECT(strstr(error.message, "ncclGetVersion: internal error"));
    EXPECT(error.domain == GPUSYS_DOMAIN_NCCL && error.foreign == 3);
    return 0;
}

/* "2.28.3" as 2·10000 + 28·100 + 3. */
static int since_code(const char *since)
{
    int major = 0, minor = 0, patch = 0;
    sscanf(since, "%d.%d.%d", &major, &minor, &patch);
    return major * 10000 + minor * 100 + patch;
}

/*
 * Every function is there, or missing and said to be so, as its first version and the library's have it. The stand-ins
 * have what the table has.
 */
static int symbols_of(const char *file, int expected_version)
{
    char path[600];
    struct gpusys_nccl_symbol symbol = {.size = sizeof symbol};
    struct gpusys_error error;
    int version, before = 0, code;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    setenv("GPUSYS_LIBNCCL", path, 1);
    EXPECT(gpusys_nccl_version(&version, NULL) == 0 && version == expected_version);
    uint32_t at = 0, present = 0, in_table = 0;
    for (; (code = gpusys_nccl_symbol(at, &symbol, &error)) == 0; at++) {
        int since = since_code(symbol.since);
        bool expected = symbol.in_table && since <= version;
        if (symbol.present != expected)
            fprintf(stderr, "%s: %s, since %s: %s\n", file, symbol.name, symbol.since,
                    expected ? "not there" : "there");
        EXPECT(symbol.present == expected && since >= before); /* oldest first */
        EXPECT(gpusys_nccl_missing(symbol.name, NULL) == (expected ? 0 : -ENOSYS));
        before = since;
        present += symbol.present;
        in_table += symbol.in_table;
    }
    EXPECT(code == -ENOENT && strstr(error.message, "no function number"));
    EXPECT(in_table == (sizeof(struct gpusys_nccl) - sizeof(size_t)) / sizeof(void *));
    EXPECT(present >= 20 && in_table < at);
    EXPECT((present < in_table) == (expected_version < 22907)); /* since then the table has had all */
    return 0;
}

static const struct {
    const char *file;
    int version;
} stand_ins[] = {
    {"libnccl_210.so", 21003},  {"libnccl_213.so", 21304}, {"libnccl_214.so", 21403},
    {"libnccl_218.so", 21803},  {"libnccl_219.so", 21903}, {"libnccl_227.so", 22703},
    {"libnccl_2283.so", 22803}, {"libnccl_230.so", 23007}, {"libnccl.so.2", 23203},
};

static int missing_is_explained(void)
{
    char path[600], message[700];
    const struct gpusys_nccl *nccl;
    struct gpusys_error error = {.code = 77};
    snprintf(path, sizeof path, "%s/libnccl_214.so", folder);
    setenv("GPUSYS_LIBNCCL", path, 1);
    EXPECT(gpusys_nccl_table(&nccl, NULL) == 0);
    EXPECT(nccl->comm_init_rank_config && nccl->comm_finalize && nccl->get_last_error);
    EXPECT(!nccl->comm_split && !nccl->mem_alloc && !nccl->comm_mem_stats);
    EXPECT(gpusys_nccl_missing("ncclCommFinalize", &error) == 0 && error.code == 77);
    EXPECT(gpusys_nccl_missing("ncclCommSplit", &error) == -ENOSYS);
    snprintf(message, sizeof message, "NCCL: %s has no ncclCommSplit", gpusys_nccl_library());
    EXPECT(strcmp(error.message, message) == 0);
    EXPECT(strcmp(error.detail, "since\tNCCL 2.18") == 0);
    EXPECT(strcmp(error.cause, "this NCCL is older than 2.18") == 0);
    EXPECT(strncmp(error.hint, "upgrade it: ", 12) == 0 && strstr(error.hint, "libnccl2"));
    EXPECT(gpusys_nccl_missing("ncclPutSignal", &error) == -ENOSYS); /* not in the table */
    EXPECT(strcmp(error.detail, "since\tNCCL 2.29.2") == 0);
    EXPECT(gpusys_nccl_missing("ncclTeleport", &error) == -EINVAL && strstr(error.message, "ncclTeleport"));
    EXPECT(gpusys_nccl_missing(NULL, &error) == -EINVAL);
    return 0;
}

static int structs_of_other_sizes(void)
{
    struct {
        struct gpusys_nccl_symbol known;
        char unknown[8];
    } grown = {.known.size = sizeof grown, .unknown = "1234567"};
    struct gpusys_nccl_symbol cut = {.size = offsetof(struct gpusys_nccl_symbol, since), .since = "kept"};
    struct gpusys_nccl_symbol none = {.size = 0};
    struct gpusys_error error;
    EXPECT(gpusys_nccl_symbol(0, &grown.known, NULL) == 0);
    EXPECT(grown.known.size == sizeof grown && strcmp(grown.known.name, "ncclGetVersion") == 0);
    EXPECT(memcmp(grown.unknown, "\0\0\0\0\0\0\0", 8) == 0);
    EXPECT(gpusys_nccl_symbol(0, &cut, NULL) == 0 && cut.name && strcmp(cut.since, "kept") == 0);
    EXPECT(gpusys_nccl_symbol(0, &none, &error) == -EINVAL && !none.name);
    return 0;
}

static void *load(void *context)
{
    const struct gpusys_nccl *nccl = NULL;
    int version = 0;
    (void)context;
    bool loaded = gpusys_nccl_table(&nccl, NULL) == 0 && gpusys_nccl_version(&version, NULL) == 0;
    return loaded && nccl->size && version ? (void *)(uintptr_t)nccl : NULL;
}

static int many_threads(void)
{
    pthread_t threads[8];
    void *tables[8];
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        EXPECT(pthread_create(&threads[i], NULL, load, NULL) == 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], &tables[i]);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        EXPECT(tables[i] && tables[i] == tables[0]);
    return 0;
}

static void finish(pid_t pid)
{
    int status;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static pid_t split(void)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    fflush(NULL);
    pid_t pid = fork();
    for (size_t i = 0; pid == 0 && i < COUNT_OF(deadly); i++)
        signal(deadly[i], SIG_DFL); /* cmocka would go on with the next test in the child */
    return pid;
}

#define CASE(name)                                                                                           \
    static void test_##name(void **state)                                                                    \
    {                                                                                                        \
        (void)state;                                                                                         \
        pid_t pid = split();                                                                                 \
        if (pid == 0)                                                                                        \
            exit(name());                                                                                    \
        finish(pid);                                                                                         \
    }
CASE(loads_once)
CASE(reuses_what_is_there)
CASE(lists_every_copy)
CASE(no_library)
CASE(another_library)
CASE(a_version_that_is_not_told)
CASE(missing_is_explained)
CASE(structs_of_other_sizes)
CASE(many_threads)

static void test_symbols_of_every_version(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(stand_ins); i++) {
        pid_t pid = split();
        if (pid == 0)
            exit(symbols_of(stand_ins[i].file, stand_ins[i].version));
        finish(pid);
    }
}

static int begin(void **state)
{
    (void)state;
    const char *library = getenv("GPUSYS_LIBNCCL"), *slash = library ? strrchr(library, '/') : NULL;
    if (!slash)
        return -1;
    snprintf(good, sizeof good, "%s", library);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - library), library);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_have_names_and_sizes),
        cmocka_unit_test(operators_and_results_have_names),
        cmocka_unit_test(versions_come_apart),
        cmocka_unit_test(the_config_serves_every_version),
        cmocka_unit_test(the_config_lies_as_theirs),
        cmocka_unit_test(the_sim_info_is_unset),
        cmocka_unit_test(test_loads_once),
        cmocka_unit_test(test_reuses_what_is_there),
        cmocka_unit_test(test_lists_every_copy),
        cmocka_unit_test(test_no_library),
        cmocka_unit_test(test_another_library),
        cmocka_unit_test(test_a_version_that_is_not_told),
        cmocka_unit_test(test_missing_is_explained),
        cmocka_unit_test(test_symbols_of_every_version),
        cmocka_unit_test(test_structs_of_other_sizes),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests_name("nccl", tests, begin, NULL);
}
