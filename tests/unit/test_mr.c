/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Registered memory: what reaches the driver, what is refused and why; GPU memory by both ways. */
#include "rail/verbs.h"
#include "verbs_play.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { LENGTH = 8192, RAILS = 2 };

static struct play_end port; /* fake0 */
static unsigned char memory[LENGTH];

static int open_mr(struct gpusys_mr **ret_mr, void *address, uint64_t length, uint32_t access,
                   struct gpusys_error *error)
{
    *ret_mr = NULL;
    int result = gpusys_mr_open(ret_mr, port.pd, address, length, access, error);
    assert_int_equal(*ret_mr == NULL, result != 0);
    return result;
}

/* ---- what reaches the driver ---- */

static int last_flags;
static unsigned plain_calls, optional_calls;
static struct gs_ibv spied;

static struct ibv_mr *spy_plain(struct ibv_pd *pd, void *address, size_t length, int flags)
{
    last_flags = flags;
    plain_calls++;
    return gs_ibv(&(int){0}, NULL)->reg_mr(pd, address, length, flags);
}

static struct ibv_mr *spy_optional(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                   unsigned flags)
{
    last_flags = (int)flags;
    optional_calls++;
    return gs_ibv(&(int){0}, NULL)->reg_mr_iova2(pd, address, length, iova, flags);
}

static void spy(bool has_optional)
{
    spied = *gs_ibv(&(int){0}, NULL);
    spied.reg_mr = spy_plain;
    spied.reg_mr_iova2 = has_optional ? spy_optional : NULL;
    plain_calls = optional_calls = 0;
    port.verbs->ibv = &spied;
}

static void flags_of_accesses(void **state)
{
    (void)state;
    const struct {
        uint32_t access;
        int flags;
    } accesses[] = {{GPUSYS_MR_SOURCE, 0},
                    {GPUSYS_MR_LANDING, IBV_ACCESS_LOCAL_WRITE},
                    {GPUSYS_MR_PEER_READ, IBV_ACCESS_REMOTE_READ},
                    {GPUSYS_MR_PEER_READ_WRITE,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE}};
    for (size_t i = 0; i < COUNT_OF(accesses); i++)
        for (unsigned way = 0; way < 4; way++) { /* relaxed or not, with the call for it or without */
            bool is_relaxed = way & 1, has_optional = way & 2;
            struct gpusys_mr *mr;
            spy(has_optional);
            uint32_t access = accesses[i].access | (is_relaxed ? GPUSYS_MR_RELAXED : 0);
            assert_int_equal(open_mr(&mr, memory, LENGTH, access, NULL), 0);
            int optional = is_relaxed && has_optional ? IBV_ACCESS_RELAXED_ORDERING : 0;
            assert_int_equal(last_flags, accesses[i].flags | optional);
            assert_int_equal(optional_calls, optional != 0);
            assert_int_equal(plain_calls, optional == 0);
            gpusys_mr_close(mr);
        }
    port.verbs->ibv = gs_ibv(&(int){0}, NULL);
}

static void keys_and_addresses(void **state)
{
    (void)state;
    struct gpusys_mr *mr;
    struct {
        struct gpusys_mr_info info;
        uint64_t more;
    } newer = {.info = {.size = sizeof newer}, .more = 5};
    assert_int_equal(open_mr(&mr, memory + 3, 77, GPUSYS_MR_LANDING, NULL), 0);
    assert_int_equal(gpusys_mr_info(mr, &newer.info), 0);
    assert_int_equal(newer.info.address, (uintptr_t)memory + 3);
    assert_int_equal(newer.info.length, 77);
    assert_int_equal(newer.info.lkey, mr->mr->lkey);
    assert_int_equal(newer.info.rkey, mr->mr->rkey);
    assert_int_equal(newer.more, 0);
    newer.info.size = 0;
    assert_int_equal(gpusys_mr_info(mr, &newer.info), -EINVAL);
    gpusys_mr_close(mr);
}

/* ---- what is refused ---- */

static void accesses_that_are_none(void **state)
{
    (void)state;
    const uint32_t accesses[] = {0, 5, 0x100, 0x201, 0x80000001};
    struct gpusys_mr *mr;
    struct gpusys_error error = {.code = 0};
    for (size_t i = 0; i < COUNT_OF(accesses); i++) {
        assert_int_equal(open_mr(&mr, memory, LENGTH, accesses[i], &error), -EINVAL);
        assert_says(&error, -EINVAL, "fake0: no such access");
    }
}

static void memory_that_is_none(void **state)
{
    (void)state;
    struct gpusys_mr *mr;
    struct gpusys_error error = {.code = 0};
    assert_int_equal(open_mr(&mr, NULL, LENGTH, GPUSYS_MR_LANDING, &error), -EINVAL);
    assert_int_equal(open_mr(&mr, memory, 0, GPUSYS_MR_LANDING, &error), -EINVAL);
    assert_int_equal(open_mr(&mr, memory, UINT64_MAX, GPUSYS_MR_LANDING, &error), -EINVAL);
    assert_says(&error, -EINVAL, "18446744073709551615 bytes at");
    assert_int_equal(fake.calls("ibv_reg_mr"), 0);
}

static void more_than_the_device_registers_at_once(void **state)
{
    (void)state;
    struct play_end small = {.verbs = NULL};
    struct gpusys_mr *mr = NULL;
    struct gpusys_error error = {.code = 0};
    unsigned char *bytes = malloc(65537);
    assert_non_null(bytes);
    play_open_port(&small, "small");
    assert_int_equal(gpusys_mr_open(&mr, small.pd, bytes, 65537, GPUSYS_MR_LANDING, &error), -EMSGSIZE);
    assert_null(mr);
    assert_says(&error, -EMSGSIZE, "small: 65537 bytes are above the 65536");
    assert_non_null(strstr(error.hint, "pieces"));
    assert_int_equal(gpusys_mr_open(&mr, small.pd, bytes, 65536, GPUSYS_MR_LANDING, &error), 0);
    gpusys_mr_close(mr);
    play_end_close(&small);
    free(bytes);
}

static void memory_that_cannot_be_pinned(void **state)
{
    (void)state;
    struct gpusys_mr *mr;
    struct gpusys_error error = {.code = 0};
    void *hole = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(hole, MAP_FAILED);
    munmap(hole, LENGTH);
    assert_int_equal(open_mr(&mr, hole, LENGTH, GPUSYS_MR_LANDING, &error), -EFAULT);
    assert_says(&error, -EFAULT, "fake0: registering 8192 bytes: ");
    assert_non_null(strstr(error.cause, "cannot be pinned"));
}

/* As a user whose limit counts, in a process of its own. Its exit status is the number of the first mistake. */
static int memlock_of_a_user(rlim_t limit, uint64_t length, const char *detail, const char *cause)
{
    struct gpusys_mr *mr;
    struct gpusys_error error = {.code = 0};
    const struct rlimit limits = {limit, limit};
    if (setrlimit(RLIMIT_MEMLOCK, &limits) || (geteuid() == 0 && setresuid(65534, 65534, 65534)))
        return 1;
    fake.on("ibv_reg_mr", 1, FAKE_IBVERBS_FAIL, ENOMEM);
    if (gpusys_mr_open(&mr, port.pd, memory, length, GPUSYS_MR_LANDING, &error) != -ENOMEM)
        return 2;
    if (!strstr(error.detail, detail))
        return 3;
    if (!strstr(error.cause, cause))
        return 4;
    return strstr(error.hint, "ulimit -l") && strstr(error.hint, "limits.conf") ? 0 : 5;
}

static void assert_child(rlim_t limit, uint64_t length, const char *detail, const char *cause)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(memlock_of_a_user(limit, length, detail, cause));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_limit_on_locked_memory(void **state)
{
    (void)state;
    assert_child(4096, LENGTH, "memlock\tlimit 4096 bytes, this registration needs 8192",
                 "smaller than the region");
    assert_child(65536, LENGTH, "memlock\tlimit 65536 bytes, this registration needs 8192",
                 "together with what is registered already");
}

static void no_memory_without_a_limit(void **state)
{
    (void)state;
    struct gpusys_mr *mr;
    struct gpusys_error error = {.code = 0};
    if (geteuid())
        skip();
    fake.on("ibv_reg_mr", 1, FAKE_IBVERBS_FAIL, ENOMEM);
    assert_int_equal(open_mr(&mr, memory, LENGTH, GPUSYS_MR_LANDING, &error), -ENOMEM);
    assert_says(&error, -ENOMEM, "registering 8192 bytes");
    assert_non_null(strstr(error.detail, "no limit here"));
    assert_non_null(strstr(error.hint, "rdma resource show"));
}

static void whatever_else_the_driver_says(void **state)
{
    (void)state;
    struct gpusys_mr *mr;
    struct gpusys_error error = {.code = 0};
    fake.on("ibv_reg_mr", 1, FAKE_IBVERBS_FAIL, EPERM);
    assert_int_equal(open_mr(&mr, memory, LENGTH, GPUSYS_MR_LANDING, &error), -EPERM);
    assert_says(&error, -EPERM, "Operation not permitted");
    fake.on("ibv_reg_mr_iova2", 1, FAKE_IBVERBS_FAIL, EPERM);
    assert_int_equal(open_mr(&mr, memory, LENGTH, GPUSYS_MR_LANDING | GPUSYS_MR_RELAXED, &error), -EPERM);
    assert_string_equal(error.cause, "");
    struct gpusys_pd *pd = NULL;
    fake.on("ibv_alloc_pd", 1, FAKE_IBVERBS_FAIL, ENOSPC);
    assert_int_equal(gpusys_pd_open(&pd, port.verbs, &error), -ENOSPC);
    assert_null(pd);
    assert_says(&error, -ENOSPC, "fake0: a protection domain");
}

/* ---- GPU memory: a memfd plays the descriptor ---- */

struct gpu {
    struct play_end ends[RAILS];
    struct gpusys_pd *pds[RAILS];
    struct gpusys_mr *mrs[RAILS];
    unsigned char *bytes; /* as the "GPU" has them */
    int fd;
    uint32_t path;
    struct gpusys_error error;
};

static void gpu_open(struct gpu *gpu, const char *one, const char *other)
{
    memset(gpu, 0, sizeof *gpu);
    play_open_port(&gpu->ends[0], one);
    play_open_port(&gpu->ends[1], other);
    gpu->pds[0] = gpu->ends[0].pd;
    gpu->pds[1] = gpu->ends[1].pd;
    gpu->fd = memfd_create("gpu", MFD_CLOEXEC);
    assert_int_equal(ftruncate(gpu->fd, 2 * LENGTH), 0);
    gpu->bytes = mmap(NULL, 2 * LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd, 0);
    assert_ptr_not_equal(gpu->bytes, MAP_FAILED);
}

/* The address is `memory`, so that what was registered by the address is told from what was by the descriptor. */
static int gpu_register(struct gpu *gpu, int fd)
{
    gpu->path = 99;
    gpu->mrs[0] = gpu->mrs[1] = NULL;
    return gpusys_mr_open_gpu(gpu->mrs, gpu->pds, RAILS, memory, 4096, fd, 4096, GPUSYS_MR_PEER_READ_WRITE,
                              &gpu->path, &gpu->error);
}

static void gpu_release(struct gpu *gpu)
{
    gpusys_mr_close(gpu->mrs[0]);
    gpusys_mr_close(gpu->mrs[1]);
    assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_MRS), 0);
}

static void gpu_close(struct gpu *gpu)
{
    play_end_close(&gpu->ends[0]);
    play_end_close(&gpu->ends[1]);
    munmap(gpu->bytes, 2 * LENGTH);
    close(gpu->fd);
}

static void by_dmabuf_in_all_domains(void **state)
{
    (void)state;
    struct gpu gpu;
    gpu_open(&gpu, "fake0", "fake1");
    for (unsigned round = 1; round <= 3; round++) {
        assert_int_equal(gpu_register(&gpu, gpu.fd), 0);
        assert_int_equal(gpu.path, GPUSYS_GPU_DMABUF);
        assert_int_equal(fake.calls("ibv_reg_dmabuf_mr"),
                         RAILS + RAILS * round); /* asked once, each device */
        assert_int_equal(fake.calls("ibv_reg_mr"), 0);
        for (int i = 0; i < RAILS; i++) {
            struct gpusys_mr_info info = {.size = sizeof info};
            gpusys_mr_info(gpu.mrs[i], &info);
            assert_int_equal(info.address, (uintptr_t)memory);
            assert_int_equal(info.length, 4096);
        }
        gpu_release(&gpu);
    }
    gpu_close(&gpu);
}

/* A peer reads the descriptor's bytes at the address that it was told. */
static void bytes_by_dmabuf(void **state)
{
    (void)state;
    struct gpu gpu;
    struct play_end ends[2] = {{.verbs = NULL}};
    gpu_open(&gpu, "fake0", "fake1");
    play_ends_open(ends, "fake0", "fake1", NULL);
    struct gpusys_pd *pd = ends[1].pd;
    struct gpusys_mr *mr = NULL;
    struct gpusys_mr_info key = {.size = sizeof key};
    assert_int_equal(
        gpusys_mr_open_gpu(&mr, &pd, 1, memory, 4096, gpu.fd, 4096, GPUSYS_MR_PEER_READ, &gpu.path, NULL), 0);
    gpusys_mr_info(mr, &key);
    for (int i = 0; i < 4096; i++)
        gpu.bytes[4096 + i] = (unsigned char)(i * 3 + i / 256);
    struct gpusys_qp_op op = play_op(ends, GPUSYS_QP_READ, 1, 0, 0, 4000);
    op.remote = key.address + 96;
    op.rkey = key.rkey;
    assert_int_equal(play_one(ends[0].qp, &op), 0);
    assert_memory_equal(ends[0].bytes, gpu.bytes + 4096 + 96, 4000);
    gpusys_mr_close(mr);
    play_end_close(&ends[0]);
    play_end_close(&ends[1]);
    gpu_close(&gpu);
}

/* small has no dmabuf: then all of them go by the address. */
static void one_device_without_dmabuf(void **state)
{
    (void)state;
    struct gpu gpu;
    for (int order = 0; order < 2; order++) {
        fake.reset();
        gpu_open(&gpu, order ? "small" : "fake0", order ? "fake0" : "small");
        for (unsigned round = 0; round < 2; round++) {
            assert_int_equal(gpu_register(&gpu, gpu.fd), 0);
            assert_int_equal(gpu.path, GPUSYS_GPU_PEER_MEMORY);
            gpu_release(&gpu);
        }
        assert_int_equal(fake.calls("ibv_reg_mr"), 4);
        assert_in_range(fake.calls("ibv_reg_dmabuf_mr"), 1, 2); /* only asked */
        gpu_close(&gpu);
    }
}

static void without_a_descriptor(void **state)
{
    (void)state;
    struct gpu gpu;
    gpu_open(&gpu, "fake0", "fake1");
    assert_int_equal(gpu_register(&gpu, -1), 0);
    assert_int_equal(gpu.path, GPUSYS_GPU_PEER_MEMORY);
    assert_int_equal(fake.calls("ibv_reg_dmabuf_mr"), 0);
    gpu_release(&gpu);
    gpu_close(&gpu);
}

/* The second device refuses the descriptor: the first one's registration is undone, and both go by the address. */
static void a_descriptor_that_one_device_refuses(void **state)
{
    (void)state;
    struct gpu gpu;
    gpu_open(&gpu, "fake0", "fake1");
    fake.on("ibv_reg_dmabuf_mr", 4, FAKE_IBVERBS_FAIL, EINVAL);
    assert_int_equal(gpu_register(&gpu, gpu.fd), 0);
    assert_int_equal(gpu.path, GPUSYS_GPU_PEER_MEMORY);
    assert_int_equal(FAKE(fake_ibverbs_live)(FAKE_IBVERBS_MRS), RAILS);
    gpu_release(&gpu);
    gpu_close(&gpu);
}

static void neither_way(void **state)
{
    (void)state;
    struct gpu gpu;
    gpu_open(&gpu, "fake0", "fake1");
    fake.on("ibv_reg_dmabuf_mr", 4, FAKE_IBVERBS_FAIL, EOPNOTSUPP);
    fake.on("ibv_reg_mr", 2, FAKE_IBVERBS_FAIL, EFAULT);
    assert_int_equal(gpu_register(&gpu, gpu.fd), -EFAULT);
    assert_null(gpu.mrs[0]);
    assert_null(gpu.mrs[1]);
    assert_int_equal(gpu.path, 99);
    assert_says(&gpu.error, -EFAULT, "registering 4096 bytes of GPU memory");
    assert_non_null(strstr(gpu.error.detail, "dmabuf\tfake1: Operation not supported"));
    assert_non_null(strstr(gpu.error.detail, "peer memory\tfake1: Bad address"));
    assert_non_null(strstr(gpu.error.hint, "nvidia-peermem"));
    gpu_release(&gpu);
    fake.on("ibv_reg_mr", 1, FAKE_IBVERBS_FAIL, EFAULT);
    assert_int_equal(gpu_register(&gpu, -1), -EFAULT);
    assert_non_null(strstr(gpu.error.detail, "dmabuf\tno descriptor given"));
    assert_non_null(strstr(gpu.error.detail, "peer memory\tfake0: Bad address"));
    gpu_close(&gpu);
    gpu_open(&gpu, "fake0", "small");
    fake.on("ibv_reg_mr", 2, FAKE_IBVERBS_FAIL, EPERM);
    assert_int_equal(gpu_register(&gpu, gpu.fd), -EPERM);
    assert_non_null(strstr(gpu.error.detail, "dmabuf\tthe library, the kernel or a device does not do it"));
    gpu_release(&gpu);
    gpu_close(&gpu);
}

static void gpu_memory_that_is_none(void **state)
{
    (void)state;
    struct gpu gpu;
    gpu_open(&gpu, "fake0", "small");
    uint32_t path = 99;
    const uint32_t access = GPUSYS_MR_PEER_READ;
    assert_int_equal(
        gpusys_mr_open_gpu(gpu.mrs, gpu.pds, RAILS, memory, 65537, gpu.fd, 0, access, &path, &gpu.error),
        -EMSGSIZE);
    assert_says(&gpu.error, -EMSGSIZE, "small: 65537 bytes are above the 65536");
    assert_int_equal(
        gpusys_mr_open_gpu(gpu.mrs, gpu.pds, RAILS, memory, 4096, gpu.fd, 0, 9, &path, &gpu.error), -EINVAL);
    assert_int_equal(path, 99);
    gpu_release(&gpu);
    gpu_close(&gpu);
}

static int clear(void **state)
{
    (void)state;
    fake.reset();
    return 0;
}

static int begin(void **state)
{
    int result = play_begin_all(state);
    if (!result)
        play_open_port(&port, "fake0");
    return result;
}

static int end(void **state)
{
    play_end_close(&port);
    return fake.live(FAKE_IBVERBS_KINDS) == 0 ? play_end_all(state) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(flags_of_accesses, clear),
        cmocka_unit_test_setup(keys_and_addresses, clear),
        cmocka_unit_test_setup(accesses_that_are_none, clear),
        cmocka_unit_test_setup(memory_that_is_none, clear),
        cmocka_unit_test_setup(more_than_the_device_registers_at_once, clear),
        cmocka_unit_test_setup(memory_that_cannot_be_pinned, clear),
        cmocka_unit_test_setup(the_limit_on_locked_memory, clear),
        cmocka_unit_test_setup(no_memory_without_a_limit, clear),
        cmocka_unit_test_setup(whatever_else_the_driver_says, clear),
        cmocka_unit_test_setup(by_dmabuf_in_all_domains, clear),
        cmocka_unit_test_setup(bytes_by_dmabuf, clear),
        cmocka_unit_test_setup(one_device_without_dmabuf, clear),
        cmocka_unit_test_setup(without_a_descriptor, clear),
        cmocka_unit_test_setup(a_descriptor_that_one_device_refuses, clear),
        cmocka_unit_test_setup(neither_way, clear),
        cmocka_unit_test_setup(gpu_memory_that_is_none, clear),
    };
    return cmocka_run_group_tests_name("registered memory", tests, begin, end);
}
