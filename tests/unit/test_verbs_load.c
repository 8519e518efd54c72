/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Loading libibverbs: none, a wrong one, an old one; what is done about fork. Each case in a process of its own. */
#include "rail/verbs.h"
#include "verbs_play.h"

#include <sys/utsname.h>
#include <sys/wait.h>

static char good[512], old[512]; /* the stand-in, and the same without its newer functions */

/* ---- the kernel that we are told of ---- */

static const char *release = "6.1.0";
int __real_uname(struct utsname *name);
int __wrap_uname(struct utsname *name);

int __wrap_uname(struct utsname *name)
{
    int result = __real_uname(name);
    snprintf(name->release, sizeof name->release, "%s", release);
    return result;
}

/* ---- cases ---- */

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                                  \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

static int64_t calls(const char *name)
{
    void *library = dlopen(getenv("GPUSYS_LIBIBVERBS"), RTLD_LAZY);
    int64_t (*count)(const char *);
    *(void **)&count = dlsym(library, "fake_ibverbs_calls");
    return count(name);
}

static int good_library(void)
{
    EXPECT(gpusys_verbs_enabled());
    EXPECT(gpusys_verbs_library() == NULL);
    EXPECT(gpusys_verbs_status(NULL) == 0);
    char *path = realpath(good, NULL);
    EXPECT(path && strcmp(gpusys_verbs_library(), path) == 0);
    free(path);
    EXPECT(gpusys_verbs_status(NULL) == 0);
    return 0;
}

static int no_library(void)
{
    struct gpusys_error error = {.code = 0};
    struct gpusys_verbs *verbs = NULL;
    setenv("GPUSYS_LIBIBVERBS", "/nowhere/libibverbs.so.1", 1);
    EXPECT(gpusys_verbs_enabled());
    EXPECT(gpusys_verbs_status(&error) == -ENOENT);
    EXPECT(error.code == -ENOENT && strstr(error.message, "/nowhere/libibverbs.so.1"));
    EXPECT(strstr(error.message, "libibverbs") && error.hint[0]);
    EXPECT(gpusys_verbs_library() == NULL);
    EXPECT(gpusys_verbs_open(&verbs, NULL, &error) == -ENOENT && !verbs);
    setenv("GPUSYS_LIBIBVERBS", good, 1); /* installed meanwhile */
    EXPECT(gpusys_verbs_status(&error) == 0);
    return 0;
}

static int another_library(void)
{
    struct gpusys_error error = {.code = 0};
    Dl_info info;
    EXPECT(dladdr((void *)(uintptr_t)&strtol, &info));
    setenv("GPUSYS_LIBIBVERBS", info.dli_fname, 1);
    EXPECT(gpusys_verbs_status(&error) == -ENOSYS);
    EXPECT(strstr(error.message, "has no ibv_get_device_list"));
    EXPECT(strstr(error.hint, "libibverbs1"));
    EXPECT(gpusys_verbs_library() == NULL);
    setenv("GPUSYS_LIBIBVERBS", good, 1);
    EXPECT(gpusys_verbs_status(&error) == 0);
    return 0;
}

/* All but what needs the newer functions works, and that falls back. */
static int old_library(void)
{
    struct play_end ends[2] = {{.verbs = NULL}};
    struct gpusys_mr *mr = NULL, *gpu = NULL;
    struct gpusys_verbs_event event;
    uint32_t path = 0;
    setenv("GPUSYS_LIBIBVERBS", old, 1);
    EXPECT(gpusys_verbs_status(NULL) == 0);
    const struct gs_ibv *ibv = gs_ibv(&(int){0}, NULL);
    EXPECT(!ibv->reg_mr_iova2 && !ibv->query_gid_ex && !ibv->reg_dmabuf_mr && !ibv->is_fork_initialized &&
           !ibv->event_type_str);
    EXPECT(play_begin(NULL) == 0);
    play_ends_open(ends, "ib0", "ib1", NULL);
    assert_moves(ends);
    EXPECT(gpusys_mr_open(&mr, ends[0].pd, ends[0].bytes, 100, GPUSYS_MR_LANDING | GPUSYS_MR_RELAXED, NULL) ==
           0);
    EXPECT(gpusys_mr_open_gpu(&gpu, &ends[0].pd, 1, ends[0].bytes, 100, 0, 0, GPUSYS_MR_LANDING, &path,
                              NULL) == 0);
    EXPECT(path == GPUSYS_GPU_PEER_MEMORY);
    EXPECT(calls("ibv_reg_dmabuf_mr") == 0 && calls("ibv_reg_mr_iova2") == 0);
    FAKE(fake_ibverbs_event)("ib0", IBV_EVENT_PORT_ERR, 1);
    EXPECT(gpusys_verbs_event(ends[0].verbs, &event) == 1 && event.kind == GPUSYS_EVENT_PORT_DOWN &&
           event.text[0]);
    gpusys_mr_close(mr);
    gpusys_mr_close(gpu);
    play_ends_close(ends);
    return 0;
}

static int devices_that_cannot_be_listed(void)
{
    struct gpusys_error error = {.code = 0};
    EXPECT(gs_ibv(&(int){0}, NULL));
    FAKE(fake_ibverbs_on)("ibv_get_device_list", 1, FAKE_IBVERBS_FAIL, EPERM);
    EXPECT(gpusys_verbs_status(&error) < 0 && error.message[0]);
    EXPECT(gpusys_verbs_status(&error) == 0);
    return 0;
}

/* ---- fork ---- */

static int old_kernel(void)
{
    release = "5.11.22-generic";
    EXPECT(gpusys_verbs_status(NULL) == 0);
    EXPECT(gpusys_verbs_status(NULL) == 0);
    EXPECT(calls("ibv_fork_init") == 1);
    return 0;
}

static int ancient_kernel_and_library(void)
{
    release = "4.18.0-553.el8";
    setenv("GPUSYS_LIBIBVERBS", old, 1);
    EXPECT(gpusys_verbs_status(NULL) == 0);
    EXPECT(gpusys_verbs_status(NULL) == 0);
    EXPECT(calls("ibv_fork_init") == 1);
    return 0;
}

static int new_kernels(void)
{
    release = getenv("RELEASE");
    EXPECT(gpusys_verbs_status(NULL) == 0);
    EXPECT(calls("ibv_fork_init") == 0);
    return 0;
}

static int initialised_already(void)
{
    release = "5.4.0";
    void *library = dlopen(good, RTLD_NOW);
    int (*fork_init)(void);
    *(void **)&fork_init = library ? dlsym(library, "ibv_fork_init") : NULL;
    EXPECT(fork_init && fork_init() == 0);
    EXPECT(gpusys_verbs_status(NULL) == 0);
    EXPECT(calls("ibv_fork_init") == 1); /* that one */
    return 0;
}

static int fork_init_fails(void)
{
    release = "5.4.0";
    dlopen(good, RTLD_NOW);
    FAKE(fake_ibverbs_on)("ibv_fork_init", 1, FAKE_IBVERBS_FAIL, EINVAL);
    play_log_begin();
    EXPECT(gpusys_verbs_status(NULL) == 0); /* it works, and the log warns */
    EXPECT(strstr(play_log, "ibv_fork_init: Invalid argument; a child must not run before its exec"));
    return 0;
}

/* ---- threads ---- */

static void *load(void *context)
{
    (void)context;
    return gpusys_verbs_status(NULL) == 0 ? (void *)(uintptr_t)gpusys_verbs_library() : NULL;
}

static int many_threads(void)
{
    pthread_t threads[8];
    void *paths[8];
    release = "5.4.0";
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        EXPECT(pthread_create(&threads[i], NULL, load, NULL) == 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], &paths[i]);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        EXPECT(paths[i] && paths[i] == paths[0]);
    EXPECT(calls("ibv_fork_init") == 1);
    return 0;
}

/* ---- ---- */

static void run(int (*one)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        exit(one());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define CASE(name)                                                                                           \
    static void test_##name(void **state)                                                                    \
    {                                                                                                        \
        (void)state;                                                                                         \
        run(name);                                                                                           \
    }
CASE(good_library)
CASE(no_library)
CASE(another_library)
CASE(old_library)
CASE(devices_that_cannot_be_listed)
CASE(old_kernel)
CASE(ancient_kernel_and_library)
CASE(initialised_already)
CASE(fork_init_fails)
CASE(many_threads)

static void test_new_kernels(void **state)
{
    (void)state;
    const char *releases[] = {"5.12.0", "5.15.0-91-generic", "6.1.0-57-amd64", "10.0"};
    for (size_t i = 0; i < COUNT_OF(releases); i++) {
        setenv("RELEASE", releases[i], 1);
        run(new_kernels);
    }
}

static int begin(void **state)
{
    (void)state;
    const char *library = getenv("GPUSYS_LIBIBVERBS"), *slash = library ? strrchr(library, '/') : NULL;
    if (!slash)
        return -1;
    snprintf(good, sizeof good, "%s", library);
    snprintf(old, sizeof old, "%.*s/libibverbs_old.so", (int)(slash - library), library);
    fake_start(play_all_devices);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_library),
        cmocka_unit_test(test_no_library),
        cmocka_unit_test(test_another_library),
        cmocka_unit_test(test_old_library),
        cmocka_unit_test(test_devices_that_cannot_be_listed),
        cmocka_unit_test(test_old_kernel),
        cmocka_unit_test(test_ancient_kernel_and_library),
        cmocka_unit_test(test_new_kernels),
        cmocka_unit_test(test_initialised_already),
        cmocka_unit_test(test_fork_init_fails),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests_name("loading libibverbs", tests, begin, play_end_all);
}
