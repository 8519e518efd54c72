/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The real libnccl where there is one (GPUSYS_LIBNCCL, or the places that are searched without it), driver or not: what
 * we build on is so. Each case in a process of its own, which ends by exit, so that the library's own end is seen too.
 */
#include <gpusys/nccl.h>

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

static const char *const places[] = {"/usr/local/cuda/lib64/libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2",
                                     "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
                                     "/usr/lib/aarch64-linux-gnu/libnccl.so.2", "/usr/lib64/libnccl.so.2"};
static char real[PATH_MAX];

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                                  \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

static const struct gpusys_nccl *table(void)
{
    const struct gpusys_nccl *nccl = NULL;
    struct gpusys_error error;
    if (gpusys_nccl_table(&nccl, &error)) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return nccl;
}

static int version_and_library(void)
{
    struct gpusys_error error;
    int version = 0, major, minor, patch;
    EXPECT(gpusys_nccl_version(&version, &error) == 0);
    gpusys_nccl_version_parts(version, &major, &minor, &patch);
    EXPECT(major >= 2 && minor >= 0 && minor < 100);
    EXPECT(strcmp(gpusys_nccl_library(), real) == 0 && !gpusys_nccl_reused());
    printf("version %d.%d.%d of %s\n", major, minor, patch, real);
    return 0;
}

/* "2.28.3" as 2·10000 + 28·100 + 3. */
static int since_code(const char *since)
{
    int major = 0, minor = 0, patch = 0;
    sscanf(since, "%d.%d.%d", &major, &minor, &patch);
    return major * 10000 + minor * 100 + patch;
}

/* What the headers say of the first versions is true of the library. */
static int symbols_are_as_told(void)
{
    struct gpusys_nccl_symbol symbol = {.size = sizeof symbol};
    int version = 0, code;
    EXPECT(gpusys_nccl_version(&version, NULL) == 0);
    for (uint32_t at = 0; (code = gpusys_nccl_symbol(at, &symbol, NULL)) == 0; at++) {
        bool expected = since_code(symbol.since) <= version;
        if (symbol.present != expected)
            fprintf(stderr, "%s, since %s: %s\n", symbol.name, symbol.since,
                    symbol.present ? "there" : "not there");
        EXPECT(symbol.present == expected);
        EXPECT(gpusys_nccl_missing(symbol.name, NULL) == (expected ? 0 : -ENOSYS));
    }
    EXPECT(code == -ENOENT);
    return 0;
}

static int results_have_texts(void)
{
    const struct gpusys_nccl *nccl = table();
    EXPECT(strcmp(nccl->get_error_string(GPUSYS_NCCL_SUCCESS), "no error") == 0);
    EXPECT(strstr(nccl->get_error_string(GPUSYS_NCCL_UNHANDLED_CUDA_ERROR), "cuda error"));
    EXPECT(strstr(nccl->get_error_string(GPUSYS_NCCL_SYSTEM_ERROR), "system error"));
    EXPECT(strstr(nccl->get_error_string(GPUSYS_NCCL_INTERNAL_ERROR), "internal error"));
    EXPECT(strstr(nccl->get_error_string(GPUSYS_NCCL_INVALID_ARGUMENT), "invalid argument"));
    EXPECT(strstr(nccl->get_error_string(GPUSYS_NCCL_INVALID_USAGE), "invalid usage"));
    EXPECT(strcmp(nccl->get_error_string(-1), "unknown result code") == 0);
    EXPECT(strcmp(nccl->get_error_string(99), "unknown result code") == 0);
    return 0;
}

/* Then exit: it has a thread that waits for connections. */
static int ids_differ(void)
{
    const struct gpusys_nccl *nccl = table();
    struct gpusys_nccl_id ids[2], zero = {{0}};
    memset(ids, 0, sizeof ids);
    EXPECT(nccl->get_unique_id(&ids[0]) == GPUSYS_NCCL_SUCCESS);
    EXPECT(nccl->get_unique_id(&ids[1]) == GPUSYS_NCCL_SUCCESS);
    EXPECT(memcmp(&ids[0], &zero, 8) != 0); /* the magic of the bootstrap; 8 random bytes */
    EXPECT(memcmp(&ids[0], &ids[1], 8) != 0);
    EXPECT(memcmp(&ids[0], &ids[1], sizeof ids[0]) != 0);
    return 0;
}

static int an_interface_that_is_not_there(void)
{
    struct gpusys_nccl_id id;
    struct gpusys_error error;
    setenv("NCCL_SOCKET_IFNAME", "nonesuch7", 1);
    int result = table()->get_unique_id(&id);
    EXPECT(result != GPUSYS_NCCL_SUCCESS);
    EXPECT(gpusys_nccl_error(result, "ncclGetUniqueId", NULL, &error) < 0);
    EXPECT(strstr(error.message, "ncclGetUniqueId: "));
    EXPECT(strstr(error.cause, "nonesuch7") && strstr(error.hint, "NCCL_SOCKET_IFNAME"));
    return 0;
}

/* A communicator of one rank; SKIPPED where there is a driver, and so nothing fails. */
static int init_fails(const struct gpusys_nccl *nccl, bool with_config, struct gpusys_error *error)
{
    struct gpusys_nccl_config config;
    struct gpusys_nccl_id id;
    struct ncclComm *comm =
        NULL; /* anything else crashes a 2.21 that fails: it takes it for a communicator */
    gpusys_nccl_config_init(&config);
    EXPECT(nccl->get_unique_id(&id) == GPUSYS_NCCL_SUCCESS);
    int result = with_config ? nccl->comm_init_rank_config(&comm, 1, id, 0, &config)
                             : nccl->comm_init_rank(&comm, 1, id, 0);
    if (result == GPUSYS_NCCL_SUCCESS)
        return nccl->comm_destroy(comm) == GPUSYS_NCCL_SUCCESS ? SKIPPED : 1;
    EXPECT(result == GPUSYS_NCCL_UNHANDLED_CUDA_ERROR && !comm);
    EXPECT(gpusys_nccl_error(result, with_config ? "ncclCommInitRankConfig" : "ncclCommInitRank", NULL,
                             error) == -EIO);
    return 0;
}

static int no_driver(void)
{
    struct gpusys_error error;
    char text[2048];
    int code = init_fails(table(), false, &error);
    if (code)
        return code;
    gpusys_error_format(&error, text, sizeof text);
    puts(text);
    EXPECT(error.domain == GPUSYS_DOMAIN_NCCL && error.foreign == GPUSYS_NCCL_UNHANDLED_CUDA_ERROR);
    EXPECT(strstr(error.message, "ncclCommInitRank: unhandled cuda error"));
    EXPECT(strstr(error.detail, "CUDA driver version is insufficient"));
    EXPECT(strstr(error.detail, real));
    EXPECT(strstr(error.cause, "driver") && strstr(error.hint, "nvidia-smi"));
    return 0;
}

static int a_stub_for_a_driver(void)
{
    struct gpusys_error error;
    if (!dlopen("/usr/local/cuda/lib64/stubs/libcuda.so", RTLD_NOW | RTLD_GLOBAL))
        return SKIPPED;
    int code = init_fails(table(), false, &error);
    if (code)
        return code;
    EXPECT(strstr(error.detail, "CUDA driver is a stub library"));
    EXPECT(strstr(error.cause, "toolkit's stub") && strstr(error.hint, "LD_LIBRARY_PATH"));
    return 0;
}

/*
 * Libraries of some versions leave the thread in a group when ncclCommInitRankConfig fails early: later calls would queue
 * up and never run. One ncclGroupEnd brings it back, and does no harm where that is not so.
 */
static int a_failed_init_leaves_a_group(void)
{
    const struct gpusys_nccl *nccl = table();
    struct gpusys_error error;
    int version = 0;
    EXPECT(nccl->get_version(&version) == GPUSYS_NCCL_SUCCESS);
    if (!nccl->comm_init_rank_config)
        return SKIPPED;
    EXPECT(nccl->group_end() == GPUSYS_NCCL_INVALID_USAGE); /* in none so far */
    int code = init_fails(nccl, true, &error);
    if (code)
        return code;
    int first = nccl->group_end();
    printf("after a failed ncclCommInitRankConfig the thread is %s\n",
           first == GPUSYS_NCCL_SUCCESS ? "in a group" : "in no group");
    EXPECT(first == GPUSYS_NCCL_SUCCESS || first == GPUSYS_NCCL_INVALID_USAGE);
    if (version >= 22304 && version <= 23007)
        EXPECT(first == GPUSYS_NCCL_SUCCESS);
    EXPECT(nccl->group_end() == GPUSYS_NCCL_INVALID_USAGE);
    EXPECT(nccl->group_start() == GPUSYS_NCCL_SUCCESS && nccl->group_end() == GPUSYS_NCCL_SUCCESS);
    return 0;
}

static int a_failed_plain_init_leaves_none(void)
{
    const struct gpusys_nccl *nccl = table();
    struct gpusys_error error;
    int code = init_fails(nccl, false, &error);
    if (code)
        return code;
    EXPECT(nccl->group_end() == GPUSYS_NCCL_INVALID_USAGE);
    return 0;
}

static int the_end_of_nothing(void)
{
    const struct gpusys_nccl *nccl = table();
    EXPECT(nccl->comm_abort(NULL) == GPUSYS_NCCL_SUCCESS);
    EXPECT(nccl->comm_destroy(NULL) == GPUSYS_NCCL_SUCCESS);
    return 0;
}

static int found_without_the_variable(void)
{
    const struct gpusys_nccl *nccl = NULL;
    unsetenv("GPUSYS_LIBNCCL");
    if (gpusys_nccl_table(&nccl, NULL)) /* it lies elsewhere */
        return SKIPPED;
    EXPECT(nccl->size == sizeof *nccl && strstr(gpusys_nccl_library(), "libnccl.so.2"));
    return 0;
}

static int the_one_in_the_process_comes_first(void)
{
    EXPECT(dlopen(real, RTLD_NOW | RTLD_LOCAL));
    unsetenv("GPUSYS_LIBNCCL");
    table();
    EXPECT(gpusys_nccl_reused() && strcmp(gpusys_nccl_library(), real) == 0);
    EXPECT(gpusys_nccl_copies(NULL, 0) == 1);
    return 0;
}

/* A copy and no link: the loader knows a file by its inode. */
static bool copy_file(const char *from, const char *to)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        execlp("cp", "cp", "--", from, to, (char *)NULL);
        _exit(1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static int two_copies_are_two(void)
{
    char place[] = "/tmp/gpusys-nccl-XXXXXX", other[64], list[PATH_MAX];
    EXPECT(mkdtemp(place));
    snprintf(other, sizeof other, "%s/libnccl.so.2", place);
    bool copied = copy_file(real, other);
    void *theirs = copied ? dlopen(other, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(other);
    rmdir(place);
    EXPECT(theirs);
    table();
    EXPECT(gpusys_nccl_copies(list, sizeof list) == 2 && strstr(list, real) && strstr(list, other));
    return 0;
}

/* ---- ---- */

static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

static void run(int (*one)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
            signal(deadly[i], SIG_DFL); /* cmocka would go on with the next test in here */
        alarm(60);                      /* whatever the library does */
        exit(one());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define CASE(name)                                                                                           \
    static void test_##name(void **state)                                                                    \
    {                                                                                                        \
        (void)state;                                                                                         \
        run(name);                                                                                           \
    }
CASE(version_and_library)
CASE(symbols_are_as_told)
CASE(results_have_texts)
CASE(ids_differ)
CASE(an_interface_that_is_not_there)
CASE(no_driver)
CASE(a_stub_for_a_driver)
CASE(a_failed_init_leaves_a_group)
CASE(a_failed_plain_init_leaves_none)
CASE(the_end_of_nothing)
CASE(found_without_the_variable)
CASE(the_one_in_the_process_comes_first)
CASE(two_copies_are_two)

static bool find(void)
{
    const char *named = getenv("GPUSYS_LIBNCCL");
    if (named && *named)
        return realpath(named, real) != NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (realpath(places[i], real))
            return true;
    return false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_and_library),
        cmocka_unit_test(test_symbols_are_as_told),
        cmocka_unit_test(test_results_have_texts),
        cmocka_unit_test(test_ids_differ),
        cmocka_unit_test(test_an_interface_that_is_not_there),
        cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_a_stub_for_a_driver),
        cmocka_unit_test(test_a_failed_init_leaves_a_group),
        cmocka_unit_test(test_a_failed_plain_init_leaves_none),
        cmocka_unit_test(test_the_end_of_nothing),
        cmocka_unit_test(test_found_without_the_variable),
        cmocka_unit_test(test_the_one_in_the_process_comes_first),
        cmocka_unit_test(test_two_copies_are_two),
    };
    if (!find()) {
        puts("no libnccl.so.2 here");
        return SKIPPED;
    }
    setenv("GPUSYS_LIBNCCL", real, 1);
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("NCCL_COMM_ID");
    return cmocka_run_group_tests_name("the real libnccl", tests, NULL, NULL);
}
