/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Loading libcuda: none, a wrong one, a stub, an old one, one without a driver. Each case in a process of its own. */
#include "cuda_play.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char good[512], old[512], folder[] = "/tmp/gpusys-cuda-XXXXXX";

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                                  \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

static bool has(const char *text, const char *part)
{
    bool found = strstr(text, part) != NULL;
    if (!found)
        fprintf(stderr, "\"%s\" is not in \"%s\"\n", part, text);
    return found;
}

/* ---- the library ---- */

static int good_library(void)
{
    int version = 0;
    EXPECT(gpusys_cuda_library() == NULL);
    EXPECT(strcmp(gpusys_cuda_error_name(2), "CUDA_ERROR_OUT_OF_MEMORY") == 0); /* ours: none is loaded */
    EXPECT(strcmp(gpusys_cuda_error_text(2), "out of memory") == 0);
    EXPECT(gpusys_cuda_library() == NULL);
    EXPECT(gpusys_cuda_version(&version, NULL) == 0 && version == 13000);
    EXPECT(FAKE(fake_cuda_calls)("cuInit") == 0); /* the version needs no device */
    EXPECT(gpusys_cuda_status(NULL) == 0 && gpusys_cuda_status(NULL) == 0);
    EXPECT(FAKE(fake_cuda_calls)("cuInit") == 1);
    EXPECT(strcmp(gpusys_cuda_error_text(2), "fake: memory is full") == 0);
    char *path = realpath(good, NULL);
    EXPECT(path && strcmp(gpusys_cuda_library(), path) == 0);
    free(path);
    return 0;
}

static int no_library(void)
{
    struct gpusys_error error = {.code = 0};
    struct gpusys_cuda *cuda = NULL;
    int version = 3;
    setenv("GPUSYS_LIBCUDA", "/nowhere/libcuda.so.1", 1);
    EXPECT(gpusys_cuda_status(&error) == -ENOENT);
    EXPECT(error.code == -ENOENT && error.domain == GPUSYS_DOMAIN_LOADER);
    EXPECT(has(error.message, "CUDA: not found: /nowhere/libcuda.so.1, which GPUSYS_LIBCUDA names"));
    EXPECT(gpusys_cuda_library() == NULL);
    EXPECT(gpusys_cuda_version(&version, NULL) == -ENOENT && version == 3);
    EXPECT(gpusys_cuda_open(&cuda, 0, NULL) == -ENOENT && !cuda);
    setenv("GPUSYS_LIBCUDA", good, 1); /* installed meanwhile */
    EXPECT(gpusys_cuda_status(NULL) == 0);
    return 0;
}

/* By name only: the machine that tests run on may have one. */
static int library_by_name(void)
{
    struct gpusys_error error = {.code = 0};
    unsetenv("GPUSYS_LIBCUDA");
    if (gpusys_cuda_status(&error) != -ENOENT)
        return 0;
    EXPECT(has(error.message, "CUDA: not found"));
    EXPECT(has(error.detail, "libcuda.so.1\t") && has(error.detail, "/usr/lib/wsl/lib/libcuda.so.1\t"));
    EXPECT(has(error.hint, "install NVIDIA's driver") && has(error.hint, "--gpus all"));
    return 0;
}

static int another_library(void)
{
    struct gpusys_error error = {.code = 0};
    Dl_info info;
    EXPECT(dladdr((void *)(uintptr_t)&strtol, &info));
    setenv("GPUSYS_LIBCUDA", info.dli_fname, 1);
    EXPECT(gpusys_cuda_status(&error) == -ENOSYS);
    EXPECT(has(error.message, "has no cuInit"));
    EXPECT(gpusys_cuda_library() == NULL);
    return 0;
}

/* ---- stubs ---- */

static int copy_file(const char *from, const char *to)
{
    char bytes[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0755);
    ssize_t got = -1;
    while (in >= 0 && out >= 0 && (got = read(in, bytes, sizeof bytes)) > 0)
        if (write(out, bytes, (size_t)got) != got)
            return -1;
    close(in);
    close(out);
    return got ? -1 : 0;
}

static int stub_by_result(void)
{
    struct gpusys_error error = {.code = 0};
    uint32_t count = 8;
    setenv("FAKE_CUDA_FAIL", "cuInit=34@1", 1);
    for (int i = 0; i < 2; i++) {
        EXPECT(gpusys_cuda_count(&count, &error) == -ENODEV && count == 8);
        EXPECT(error.code == -ENODEV && error.foreign == 34 && error.domain == GPUSYS_DOMAIN_CUDA);
        EXPECT(has(error.message, "CUDA: cuInit: CUDA_ERROR_STUB_LIBRARY (34): fake: a stub"));
        EXPECT(has(error.cause, "is CUDA's stub library, which is for linking only"));
        EXPECT(has(error.hint, "LD_LIBRARY_PATH"));
    }
    EXPECT(FAKE(fake_cuda_calls)("cuInit") == 1); /* it stays what it is */
    EXPECT(gpusys_cuda_library() != NULL);
    return 0;
}

static int stub_by_path(void)
{
    struct gpusys_error error = {.code = 0};
    char path[128];
    snprintf(path, sizeof path, "%s/stubs", folder);
    EXPECT(mkdir(path, 0755) == 0);
    snprintf(path, sizeof path, "%s/stubs/libcuda.so.1", folder);
    EXPECT(copy_file(good, path) == 0);
    setenv("GPUSYS_LIBCUDA", path, 1);
    setenv("FAKE_CUDA_FAIL", "cuInit=999", 1);
    EXPECT(gpusys_cuda_status(&error) == -ENODEV);
    EXPECT(error.foreign == 999);
    EXPECT(has(error.cause, path) && has(error.cause, "is CUDA's stub library"));
    return 0;
}

/* ---- no driver ---- */

static int not_lasting(void)
{
    struct gpusys_error error = {.code = 0};
    setenv("FAKE_CUDA_FAIL", "cuInit=999@1", 1);
    EXPECT(gpusys_cuda_status(&error) == -ENODEV);
    EXPECT(has(error.message, "CUDA: cuInit: CUDA_ERROR_UNKNOWN (999): fake: who knows") && error.hint[0]);
    EXPECT(gpusys_cuda_status(&error) == 0); /* the module was loaded meanwhile */
    EXPECT(FAKE(fake_cuda_calls)("cuInit") == 2);
    return 0;
}

static int lasting(void)
{
    struct gpusys_error error = {.code = 0};
    setenv("FAKE_CUDA_FAIL", "cuInit=803@1", 1);
    EXPECT(gpusys_cuda_status(&error) == -ENODEV && gpusys_cuda_status(&error) == -ENODEV);
    EXPECT(FAKE(fake_cuda_calls)("cuInit") == 1);
    EXPECT(has(error.cause, "different versions of the driver"));
    EXPECT(has(error.detail, "library\t") && has(error.detail, "kernel module\t"));
    return 0;
}

static int other_results(void)
{
    static const struct {
        const char *rule;
        int code;
        const char *hint;
    } rows[] = {
        {"cuInit=802@1", -ENODEV, "nvidia-fabricmanager"},
        {"cuInit=2@1", -ENOMEM, "nvidia-smi"},
        {"cuInit=102@1", -EPERM, ""},
        {"cuInit=805@1", -ENODEV, "nvidia-cuda-mps-control"},
        {"cuInit=46@1", -ENODEV, "nvidia-smi"},
        {"cuInit=804@1", -ENODEV, "cuda-compat"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct gpusys_error error = {.code = 0};
        FAKE(fake_cuda_fail)(rows[i].rule);
        EXPECT(gpusys_cuda_status(&error) == rows[i].code && error.code == rows[i].code);
        EXPECT(has(error.hint, rows[i].hint));
    }
    return 0;
}

static int no_devices(void)
{
    struct gpusys_error error = {.code = 0};
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    EXPECT(gpusys_cuda_status(&error) == -ENODEV);
    EXPECT(error.foreign == 100);
    EXPECT(has(error.message, "CUDA: cuInit: CUDA_ERROR_NO_DEVICE (100): fake: none there"));
    EXPECT(gpusys_cuda_status(NULL) == -ENODEV);
    return 0;
}

static int hidden_devices(void)
{
    struct gpusys_error error = {.code = 0};
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    EXPECT(gpusys_cuda_status(&error) == -ENODEV);
    EXPECT(has(error.cause, "CUDA_VISIBLE_DEVICES is \"\", which hides every GPU"));
    EXPECT(has(error.detail, "CUDA_VISIBLE_DEVICES\t\"\""));
    EXPECT(has(error.hint, "unset CUDA_VISIBLE_DEVICES"));
    return 0;
}

static int renumbered_devices(void)
{
    struct gpusys_error error = {.code = 0};
    struct gpusys_cuda_info info = {.size = sizeof info};
    uint32_t count = 0;
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("CUDA_VISIBLE_DEVICES", "2", 1);
    EXPECT(gpusys_cuda_count(&count, NULL) == 0 && count == 1);
    EXPECT(gpusys_cuda_info(0, &info, NULL) == 0 && strcmp(info.pci, "0000:1d:00.0") == 0);
    EXPECT(gpusys_cuda_info(2, &info, &error) == -ENODEV);
    EXPECT(strcmp(error.cause, "there is 1, number 0") == 0);
    EXPECT(has(error.detail, "CUDA_VISIBLE_DEVICES\t2"));
    return 0;
}

/* ---- what is looked at to find out why ---- */

/* A file below the folder, and the folders on the way to it. */
static void put(const char *below, const char *content)
{
    char path[256];
    snprintf(path, sizeof path, "%s/root%s", folder, below);
    for (char *at = path + strlen(folder); (at = strchr(at + 1, '/'));) {
        *at = 0;
        mkdir(path, 0755);
        *at = '/';
    }
    FILE *file = fopen(path, "we");
    if (!file || fputs(content, file) < 0 || fclose(file))
        abort();
}

static void remove_file(const char *below)
{
    char path[256];
    snprintf(path, sizeof path, "%s/root%s", folder, below);
    if (unlink(path))
        abort();
}

static void explain(struct gpusys_error *error, unsigned result)
{
    char root[128];
    snprintf(root, sizeof root, "%s/root", folder);
    gs_cuda_fail(error, result, "CUDA: cuInit");
    gs_cuda_explain(error, result, root, "/usr/lib/libcuda.so.550.90.07");
}

static int evidence(void)
{
    struct gpusys_error error;
    unsetenv("CUDA_VISIBLE_DEVICES");
    explain(&error, 100);
    EXPECT(strcmp(error.cause, "the kernel module nvidia is not loaded") == 0);
    EXPECT(has(error.hint, "modprobe nvidia"));
    put("/.dockerenv", "");
    explain(&error, 100);
    EXPECT(has(error.cause, "this container has no /dev/nvidiactl: no GPU was given to it, or the host"));
    EXPECT(has(error.hint, "--gpus all"));
    put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX  Kernel Module  550.54.14\nGCC\n");
    explain(&error, 999);
    EXPECT(strcmp(error.cause, "this container has no /dev/nvidiactl: no GPU was given to it") == 0);
    remove_file("/.dockerenv");
    explain(&error, 999);
    EXPECT(has(error.cause, "the kernel module nvidia is loaded, but there is no /dev/nvidiactl"));
    put("/dev/nvidiactl", "");
    explain(&error, 999);
    EXPECT(strcmp(error.cause, "/dev/nvidia-uvm cannot be opened: No such file or directory") == 0);
    EXPECT(has(error.hint, "modprobe nvidia-uvm"));
    put("/dev/nvidia-uvm", "");
    explain(&error, 999);
    EXPECT(!error.cause[0] && has(error.hint, "dmesg"));
    explain(&error, 803);
    EXPECT(has(error.detail, "kernel module\tNVRM version: NVIDIA UNIX  Kernel Module  550.54.14\n"));
    EXPECT(has(error.detail, "library\t/usr/lib/libcuda.so.550.90.07"));
    EXPECT(has(error.hint, "reboot"));
    setenv("CUDA_VISIBLE_DEVICES", "9", 1);
    explain(&error, 100);
    EXPECT(strcmp(error.cause, "CUDA_VISIBLE_DEVICES is \"9\", and none of these is there") == 0);
    gs_cuda_explain(NULL, 100, "", "");
    return 0;
}

/* ---- an old driver, and odd ones ---- */

static int old_library(void)
{
    struct gpusys_error error = {.code = 0};
    struct gpusys_cuda_info info = {.size = sizeof info};
    struct gpusys_cuda *cuda = NULL;
    void *device = NULL;
    int fd = -1;
    uint64_t offset;
    setenv("GPUSYS_LIBCUDA", old, 1);
    setenv("FAKE_CUDA_VERSION", "10020", 1);
    setenv("FAKE_CUDA_UUIDS", "GPU-0000000000000000000000000000002a", 1);
    EXPECT(gpusys_cuda_info(0, &info, NULL) == 0);
    EXPECT(strcmp(info.uuid_text, "GPU-00000000-0000-0000-0000-00000000002a") == 0);
    EXPECT(info.dmabuf == -1 && info.gpudirect_rdma == -1 && info.gpudirect_flush == -1);
    EXPECT(info.gpudirect_ordering == -1 && info.host_numa_node == -1 && info.integrated == 0);
    EXPECT(gpusys_cuda_open(&cuda, 0, NULL) == 0);
    EXPECT(gpusys_cuda_alloc(cuda, &device, 100, NULL) == 0);
    EXPECT(gpusys_cuda_dmabuf(cuda, device, 100, &fd, &offset, &error) == -EOPNOTSUPP);
    EXPECT(error.code == -EOPNOTSUPP && has(error.message, "has no cuMemGetHandleForAddressRange"));
    EXPECT(has(error.cause, "older than 11.7") && has(error.detail, "CUDA 11.7") && fd == -1);
    gpusys_cuda_free(cuda, device);
    gpusys_cuda_close(cuda);
    EXPECT(FAKE(fake_cuda_calls)("cuDevicePrimaryCtxRelease") == 1);
    EXPECT(FAKE(fake_cuda_live)(FAKE_CUDA_KINDS) == 0);
    return 0;
}

static int no_dmabuf(void)
{
    struct gpusys_error error = {.code = 0};
    struct gpusys_cuda *cuda = NULL;
    void *device = NULL;
    int fd = -1;
    uint64_t offset;
    setenv("FAKE_CUDA_ATTRIBUTES", "124=0", 1);
    EXPECT(gpusys_cuda_open(&cuda, 0, NULL) == 0);
    EXPECT(gpusys_cuda_alloc(cuda, &device, 100, NULL) == 0);
    EXPECT(gpusys_cuda_dmabuf(cuda, device, 100, &fd, &offset, &error) == -EOPNOTSUPP);
    EXPECT(has(error.message, "GPU 0: its memory as a dmabuf: CUDA_ERROR_NOT_SUPPORTED (801)"));
    EXPECT(has(error.hint, "nvidia-peermem"));
    EXPECT(FAKE(fake_cuda_calls)("cuMemGetHandleForAddressRange") == 0);
    gpusys_cuda_free(cuda, device);
    gpusys_cuda_close(cuda);
    return 0;
}

static int mig_instance(void)
{
    struct gpusys_cuda_info info = {.size = sizeof info};
    setenv("FAKE_CUDA_NAME", "NVIDIA H200 MIG 1g.18gb", 1);
    setenv("FAKE_CUDA_UUIDS", "7", 1);
    EXPECT(gpusys_cuda_info(0, &info, NULL) == 0);
    EXPECT(strcmp(info.uuid_text, "MIG-00000000-0000-0000-0000-000000000007") == 0);
    return 0;
}

/* ---- processes and threads ---- */

static int forked(void)
{
    struct gpusys_error error = {.code = 0};
    struct gpusys_cuda *cuda = NULL;
    char parent[32];
    int status;
    EXPECT(gpusys_cuda_status(NULL) == 0);
    snprintf(parent, sizeof parent, "process %d ", (int)getpid());
    pid_t child = fork();
    if (child == 0) {
        EXPECT(gpusys_cuda_open(&cuda, 0, &error) == -ENODEV && error.foreign == 3);
        EXPECT(has(error.cause, parent) && has(error.cause, "used the driver before it forked this one"));
        EXPECT(has(error.hint, "fork before CUDA is used"));
        exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(gpusys_cuda_status(NULL) == 0);
    return 0;
}

static void *load(void *context)
{
    (void)context;
    return gpusys_cuda_status(NULL) == 0 ? (void *)(uintptr_t)gpusys_cuda_library() : NULL;
}

static int many_threads(void)
{
    pthread_t threads[8];
    void *paths[8];
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        EXPECT(pthread_create(&threads[i], NULL, load, NULL) == 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], &paths[i]);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        EXPECT(paths[i] && paths[i] == paths[0]);
    EXPECT(FAKE(fake_cuda_calls)("cuInit") == 1);
    return 0;
}

/* A process may end while work is under way and its thread waits. */
static int exit_while_busy(void)
{
    static struct gate gate;
    static struct gpusys_cuda *cuda;
    static struct CUstream_st *stream;
    gate_init(&gate);
    EXPECT(gpusys_cuda_open(&cuda, 0, NULL) == 0 && gpusys_cuda_stream_open(cuda, &stream, NULL) == 0);
    gate_close(&gate, cuda, stream);
    gate_close(&gate, cuda, NULL);
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
CASE(library_by_name)
CASE(another_library)
CASE(stub_by_result)
CASE(stub_by_path)
CASE(not_lasting)
CASE(lasting)
CASE(other_results)
CASE(no_devices)
CASE(hidden_devices)
CASE(renumbered_devices)
CASE(evidence)
CASE(old_library)
CASE(no_dmabuf)
CASE(mig_instance)
CASE(forked)
CASE(many_threads)
CASE(exit_while_busy)

static int begin(void **state)
{
    (void)state;
    const char *library = getenv("GPUSYS_LIBCUDA"), *slash = library ? strrchr(library, '/') : NULL;
    if (!slash || !mkdtemp(folder))
        return -1;
    snprintf(good, sizeof good, "%s", library);
    snprintf(old, sizeof old, "%.*s/libcuda_old.so", (int)(slash - library), library);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return 0;
}

static int end(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_library),    cmocka_unit_test(test_no_library),
        cmocka_unit_test(test_library_by_name), cmocka_unit_test(test_another_library),
        cmocka_unit_test(test_stub_by_result),  cmocka_unit_test(test_stub_by_path),
        cmocka_unit_test(test_not_lasting),     cmocka_unit_test(test_lasting),
        cmocka_unit_test(test_other_results),   cmocka_unit_test(test_no_devices),
        cmocka_unit_test(test_hidden_devices),  cmocka_unit_test(test_renumbered_devices),
        cmocka_unit_test(test_evidence),        cmocka_unit_test(test_old_library),
        cmocka_unit_test(test_no_dmabuf),       cmocka_unit_test(test_mig_instance),
        cmocka_unit_test(test_forked),          cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_exit_while_busy),
    };
    return cmocka_run_group_tests_name("loading libcuda", tests, begin, end);
}
