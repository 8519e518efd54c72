/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Looks at the driver, the GPUs, the library and what is between them; what CUDA and NCCL say is put in here. */
#include "preflight_play.h"

#include <gpusys/cuda.h>

/* ---- CUDA and NCCL as the tests want them ---- */

static struct {
    int status, foreign;
    const char *message, *cause, *hint;
    int version;
    uint32_t n_gpus;
    struct gpusys_cuda_info gpus[4];
} cuda;

static struct {
    int code;
    const char *message, *path, *copies;
    int version, n_copies;
    uint32_t n_symbols;
    struct gpusys_nccl table;
} nccl;

int __wrap_gpusys_cuda_status(struct gpusys_error *error);
int __wrap_gpusys_cuda_count(uint32_t *ret_count, struct gpusys_error *error);
int __wrap_gpusys_cuda_info(uint32_t device, struct gpusys_cuda_info *ret_info, struct gpusys_error *error);
int __wrap_gpusys_cuda_version(int *ret_version, struct gpusys_error *error);
const char *__wrap_gpusys_cuda_library(void);
int __wrap_gpusys_nccl_table(const struct gpusys_nccl **ret_nccl, struct gpusys_error *error);
int __wrap_gpusys_nccl_version(int *ret_code, struct gpusys_error *error);
int __wrap_gpusys_nccl_symbol(uint32_t at, struct gpusys_nccl_symbol *ret_symbol, struct gpusys_error *error);
const char *__wrap_gpusys_nccl_library(void);
bool __wrap_gpusys_nccl_reused(void);
int __wrap_gpusys_nccl_copies(char *text, size_t size);

int __wrap_gpusys_cuda_status(struct gpusys_error *error)
{
    if (!cuda.status)
        return 0;
    gpusys_error_set(error, cuda.status, "%s", cuda.message);
    if (cuda.foreign)
        gpusys_error_set_foreign(error, GPUSYS_DOMAIN_CUDA, cuda.foreign);
    gpusys_error_set_cause(error, "%s", cuda.cause ? cuda.cause : "");
    gpusys_error_set_hint(error, "%s", cuda.hint ? cuda.hint : "");
    return cuda.status;
}

int __wrap_gpusys_cuda_count(uint32_t *ret_count, struct gpusys_error *error)
{
    (void)error;
    *ret_count = cuda.n_gpus;
    return 0;
}

int __wrap_gpusys_cuda_info(uint32_t device, struct gpusys_cuda_info *ret_info, struct gpusys_error *error)
{
    (void)error;
    *ret_info = cuda.gpus[device];
    return 0;
}

int __wrap_gpusys_cuda_version(int *ret_version, struct gpusys_error *error)
{
    (void)error;
    if (cuda.version)
        *ret_version = cuda.version;
    return cuda.version ? 0 : -ENOENT;
}

const char *__wrap_gpusys_cuda_library(void)
{
    return "/usr/lib/libcuda.so.580.65.06";
}

int __wrap_gpusys_nccl_table(const struct gpusys_nccl **ret_nccl, struct gpusys_error *error)
{
    *ret_nccl = &nccl.table;
    return nccl.code ? gpusys_error_set(error, nccl.code, "%s", nccl.message) : 0;
}

int __wrap_gpusys_nccl_version(int *ret_code, struct gpusys_error *error)
{
    if (nccl.code)
        return gpusys_error_set(error, nccl.code, "%s", nccl.message);
    *ret_code = nccl.version;
    return 0;
}

int __wrap_gpusys_nccl_symbol(uint32_t at, struct gpusys_nccl_symbol *ret_symbol, struct gpusys_error *error)
{
    (void)error;
    if (at >= nccl.n_symbols)
        return -ENOENT;
    ret_symbol->present = at != 0;
    return 0;
}

const char *__wrap_gpusys_nccl_library(void)
{
    return nccl.code ? NULL : nccl.path;
}

bool __wrap_gpusys_nccl_reused(void)
{
    return false;
}

int __wrap_gpusys_nccl_copies(char *text, size_t size)
{
    snprintf(text, size, "%s", nccl.copies);
    return nccl.n_copies;
}

/* ---- a machine with two GPUs and all that is needed ---- */

static int any_function(struct ncclComm **comm, int n_ranks, struct gpusys_nccl_id id, int rank,
                        struct gpusys_nccl_config *config)
{
    (void)comm, (void)n_ranks, (void)id, (void)rank, (void)config;
    return 0;
}

static int fit_machine(void **state)
{
    memset(&cuda, 0, sizeof cuda);
    memset(&nccl, 0, sizeof nccl);
    cuda.version = 13000;
    cuda.n_gpus = 2;
    for (uint32_t i = 0; i < 2; i++) {
        cuda.gpus[i] = (struct gpusys_cuda_info){.size = sizeof cuda.gpus[i],
                                                 .device = i,
                                                 .name = "NVIDIA H200",
                                                 .dmabuf = 1,
                                                 .gpudirect_rdma = 1,
                                                 .uuid = {(uint8_t)(i + 1)}};
        snprintf(cuda.gpus[i].uuid_text, sizeof cuda.gpus[i].uuid_text, "GPU-%08u-0000", i + 1);
    }
    nccl.version = 22809;
    nccl.path = "/usr/lib/libnccl.so.2.28.9";
    nccl.copies = nccl.path;
    nccl.n_copies = 1;
    nccl.n_symbols = 3;
    nccl.table.comm_init_rank_config = any_function;
    return new_machine(state);
}

/* What the same machine has as files. */
static void with_files(void)
{
    has_gpus(2);
    has_driver();
    has_pci("0000:00:01.0", "0x10de", "0x030200");
    has_pci("0000:00:02.0", "0x10de", "0x030000");
}

static void driver_fails(int code, int foreign, const char *message, const char *cause, const char *hint)
{
    cuda.status = code;
    cuda.foreign = foreign;
    cuda.message = message;
    cuda.cause = cause;
    cuda.hint = hint;
}

/* ---- driver ---- */

static void driver_starts(void **state)
{
    (void)state;
    with_files();
    found("driver", GPUSYS_VERDICT_OK,
          "2 GPUs, CUDA 13.0, kernel driver 580.65.06, /usr/lib/libcuda.so.580.65.06");
}

static void driver_is_not_needed_without_a_gpu(void **state)
{
    (void)state;
    driver_fails(-ENOENT, 0, "CUDA: not found", NULL, "install it");
    found("driver", GPUSYS_VERDICT_NOT_NEEDED, "no NVIDIA GPU on this host; no libcuda.so.1");
    driver_fails(-ENODEV, 34, "CUDA: cuInit: CUDA_ERROR_STUB_LIBRARY",
                 "/x/libcuda.so.1 is CUDA's stub library", "take it away");
    found("driver", GPUSYS_VERDICT_NOT_NEEDED,
          "no NVIDIA GPU on this host; /x/libcuda.so.1 is CUDA's stub library");
}

static void driver_is_not_installed(void **state)
{
    (void)state;
    has_pci("0000:00:01.0", "0x10de", "0x030200");
    driver_fails(-ENOENT, 0, "CUDA: not found", NULL, "generic");
    found("driver", GPUSYS_VERDICT_MISSING, "CUDA: not found; GPUs at 0000:00:01.0");
    fixed_by("driver", "install NVIDIA's driver");
}

static void driver_is_outside_of_the_container(void **state)
{
    (void)state;
    has_pci("0000:00:01.0", "0x10de", "0x030200");
    driver_fails(-ENOENT, 0, "CUDA: not found", NULL, "generic");
    has("/.dockerenv", "");
    fixed_by("driver", "docker run --gpus all");
}

/* The kernel has the driver, and this process has no libcuda: no file says that it is a container, and yet. */
static void driver_of_the_kernel_alone(void **state)
{
    (void)state;
    has_driver();
    has_pci("0000:00:01.0", "0x10de", "0x030200");
    driver_fails(-ENOENT, 0, "CUDA: not found", NULL, "generic");
    found("driver", GPUSYS_VERDICT_MISSING, "CUDA: not found; kernel driver 580.65.06; GPUs at 0000:00:01.0");
    fixed_by("driver", "docker run --gpus all");
}

static void driver_is_named_wrongly(void **state)
{
    (void)state;
    has_gpus(1);
    setenv("GPUSYS_LIBCUDA", "/x", 1);
    driver_fails(-ENOENT, 0, "CUDA: not found: /x, which GPUSYS_LIBCUDA names", NULL,
                 "correct GPUSYS_LIBCUDA");
    found("driver", GPUSYS_VERDICT_MISSING, "CUDA: not found: /x, which GPUSYS_LIBCUDA names");
    fixed_by("driver", "correct GPUSYS_LIBCUDA");
    unsetenv("GPUSYS_LIBCUDA");
}

static void driver_is_a_stub(void **state)
{
    (void)state;
    with_files();
    driver_fails(-ENODEV, 34, "CUDA: cuInit: stub", "/x/stubs/libcuda.so.1 is CUDA's stub library",
                 "take the folder out of LD_LIBRARY_PATH");
    struct gpusys_finding finding = look("driver");
    assert_int_equal(finding.verdict, GPUSYS_VERDICT_BROKEN);
    assert_non_null(strstr(finding.evidence, "/x/stubs/libcuda.so.1 is CUDA's stub library"));
    assert_string_equal(finding.fix, "take the folder out of LD_LIBRARY_PATH");
}

static void driver_does_not_load(void **state)
{
    (void)state;
    driver_fails(-ELIBBAD, 0, "CUDA: found, but it cannot be loaded", "it is damaged", "");
    found("driver", GPUSYS_VERDICT_BROKEN, "CUDA: found, but it cannot be loaded: it is damaged");
    fixed_by("driver", "reinstall NVIDIA's driver");
}

/* ---- gpus ---- */

static void gpus_are_listed(void **state)
{
    (void)state;
    found("gpus", GPUSYS_VERDICT_OK, "NVIDIA H200 0 GPU-00000001-000, 1 GPU-00000002-000");
    cuda.gpus[1].compute_mode = 3;
    found("gpus", GPUSYS_VERDICT_OK,
          "NVIDIA H200 0 GPU-00000001-000, 1 GPU-00000002-000; exclusive: one process a GPU");
    cuda.status = -ENODEV;
    cuda.message = "x";
    found("gpus", GPUSYS_VERDICT_NOT_NEEDED, "CUDA does not start here: see the look at the driver");
}

static void gpu_is_there_twice(void **state)
{
    (void)state;
    cuda.gpus[1] = cuda.gpus[0];
    cuda.gpus[1].device = 1;
    found("gpus", GPUSYS_VERDICT_BROKEN, "0 and 1 are GPU-00000001-0000");
    fixed_by("gpus", "CUDA_VISIBLE_DEVICES");
}

static void gpu_is_closed(void **state)
{
    (void)state;
    cuda.gpus[1].compute_mode = 2;
    found("gpus", GPUSYS_VERDICT_BROKEN, "compute mode \"prohibited\": GPU 1");
    fixed_by("gpus", "nvidia-smi -i 1 -c DEFAULT");
}

/* ---- library and versions ---- */

static void library_is_judged(void **state)
{
    (void)state;
    found("library", GPUSYS_VERDICT_OK, "2.28.9, 2 of 3 functions known, /usr/lib/libnccl.so.2.28.9");
    nccl.version = 21003;
    nccl.table.comm_init_rank_config = NULL;
    found("library", GPUSYS_VERDICT_MISSING, "2.10.3, 2 of 3 functions known, /usr/lib/libnccl.so.2.28.9");
    fixed_by("library", "2.14 or newer");
    nccl.code = -ENOENT;
    nccl.message = "NCCL: not found";
    found("library", GPUSYS_VERDICT_NOT_NEEDED, "NCCL: not found");
    has_gpus(1);
    found("library", GPUSYS_VERDICT_MISSING, "NCCL: not found");
    nccl.code = -ENOSYS;
    nccl.message = "NCCL: x has no ncclGetVersion";
    found("library", GPUSYS_VERDICT_BROKEN, "NCCL: x has no ncclGetVersion");
}

/* This program itself plays the library: what it says of its version stands among the constants. */
__attribute__((used)) static const char banner[] = "NCCL version 2.28.9+cuda13.0";
static char own_path[512];

static void plays_library(void)
{
    ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    assert_true(length > 0);
    own_path[length] = 0;
    nccl.path = own_path;
}

static void versions_fit(void **state)
{
    (void)state;
    plays_library();
    cuda.version = 13020;
    found("versions", GPUSYS_VERDICT_OK,
          "the driver serves CUDA 13.2, NCCL 2.28.9+cuda13.0 was built for CUDA 13.0");
}

static void driver_is_older_than_nccl(void **state)
{
    (void)state;
    plays_library();
    cuda.version = 12080;
    found("versions", GPUSYS_VERDICT_BROKEN,
          "the driver serves CUDA 12.8, NCCL 2.28.9+cuda13.0 was built for CUDA 13.0");
    fixed_by("versions", "nvidia-nccl-cu12");
}

static void versions_that_are_not_known(void **state)
{
    (void)state;
    found("versions", GPUSYS_VERDICT_OK,
          "the driver serves CUDA 13.0; NCCL does not say what it was built for");
    cuda.version = 0;
    found("versions", GPUSYS_VERDICT_NOT_NEEDED,
          "there is no driver; NCCL does not say what it was built for");
    nccl.code = -ENOENT;
    nccl.message = "x";
    found("versions", GPUSYS_VERDICT_NOT_NEEDED, "there is no driver; there is no NCCL");
}

/* ---- copies ---- */

static void copies_in_the_process(void **state)
{
    (void)state;
    nccl.n_copies = 2;
    nccl.copies = "/a/libnccl.so.2\n/b/libnccl.so.2";
    found("copies", GPUSYS_VERDICT_BROKEN, "2 in this process: /a/libnccl.so.2 /b/libnccl.so.2");
}

static void copies_in_files(void **state)
{
    (void)state;
    char expected[400];
    nccl.code = -ENOENT;
    nccl.message = "x";
    found("copies", GPUSYS_VERDICT_NOT_NEEDED, "there is no libnccl.so.2");
    has("/usr/local/cuda-13.0/lib64/libnccl.so.2.28.9", "not a library");
    has_link("/usr/local/cuda-13.0/lib64/libnccl.so.2", "libnccl.so.2.28.9");
    has_link("/usr/local/cuda", "cuda-13.0"); /* the same file under another name */
    snprintf(expected, sizeof expected, "one: %s/usr/local/cuda-13.0/lib64/libnccl.so.2.28.9", play_root);
    found("copies", GPUSYS_VERDICT_OK, expected);
}

static void copies_of_python_and_a_folder_of_ldconfig(void **state)
{
    (void)state;
    nccl.code = -ENOENT;
    nccl.message = "x";
    plays_library();
    has_gpus(1);
    setenv("VIRTUAL_ENV", "/venv", 1);
    has("/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "not a library");
    has("/etc/ld.so.conf.d/x.conf", "# a remark\n/opt/nccl/lib # another\n");
    has("/opt/nccl/lib/x", "");
    has_link("/opt/nccl/lib/libnccl.so.2", own_path);
    struct gpusys_finding finding = look("copies");
    assert_int_equal(finding.verdict, GPUSYS_VERDICT_MISSING);
    assert_ptr_equal(strstr(finding.evidence, "2 files: "), finding.evidence);
    fixed_by("copies", "GPUSYS_LIBNCCL");
}

/* ---- gpudirect ---- */

static void gpudirect_has_its_ways(void **state)
{
    (void)state;
    with_files();
    found("gpudirect", GPUSYS_VERDICT_OK,
          "dmabuf on 2 of 2 GPUs, nvidia_peermem is not loaded; 0 RDMA devices");
    cuda.gpus[0].dmabuf = cuda.gpus[1].dmabuf = 0;
    found("gpudirect", GPUSYS_VERDICT_NOT_NEEDED,
          "dmabuf on 0 of 2 GPUs, nvidia_peermem is not loaded; 0 RDMA devices");
    has("/sys/class/infiniband/mlx5_0/x", "");
    found("gpudirect", GPUSYS_VERDICT_MISSING,
          "dmabuf on 0 of 2 GPUs, nvidia_peermem is not loaded; 1 RDMA device");
    fixed_by("gpudirect", "modprobe nvidia-peermem");
    has("/sys/module/nvidia_peermem/x", "");
    found("gpudirect", GPUSYS_VERDICT_OK, "dmabuf on 0 of 2 GPUs, nvidia_peermem; 1 RDMA device");
    cuda.gpus[0].gpudirect_rdma = cuda.gpus[1].gpudirect_rdma = 0;
    found("gpudirect", GPUSYS_VERDICT_MISSING,
          "dmabuf on 0 of 2 GPUs, nvidia_peermem; 1 RDMA device; these GPUs have no GPUDirect RDMA");
    cuda.n_gpus = 0;
    found("gpudirect", GPUSYS_VERDICT_NOT_NEEDED, "no GPU that CUDA shows; 1 RDMA device");
}

/* ---- fabric, container ---- */

static void fabric_and_its_manager(void **state)
{
    (void)state;
    found("fabric", GPUSYS_VERDICT_NOT_NEEDED, "there is no NVSwitch");
    has("/dev/nvidia-nvswitch0", "");
    has("/dev/nvidia-nvswitchctl", "");
    found("fabric", GPUSYS_VERDICT_OK, "1 NVSwitches, no manager is seen to run; CUDA starts");
    driver_fails(-ENODEV, 802, "CUDA: cuInit", "x", "y");
    found("fabric", GPUSYS_VERDICT_BROKEN,
          "1 NVSwitches, no manager is seen to run; CUDA says that the system is not ready");
    has_driver();
    fixed_by("fabric", "nvidia-fabricmanager, in exactly the driver's version, 580.65.06");
    driver_fails(-ENOENT, 0, "CUDA: not found", NULL, "y");
    found("fabric", GPUSYS_VERDICT_MISSING, "1 NVSwitches, no manager is seen to run; CUDA does not start");
    has("/proc/77/comm", "nv-fabricmanage\n");
    found("fabric", GPUSYS_VERDICT_OK, "1 NVSwitches, its manager runs; CUDA does not start");
}

static void container_and_what_it_lacks(void **state)
{
    (void)state;
    found("container", GPUSYS_VERDICT_NOT_NEEDED, "this is no container");
    has("/proc/1/cgroup", "0::/kubepods/besteffort/pod1\n");
    found("container", GPUSYS_VERDICT_OK,
          "kubernetes, its own IPC and its own PID namespace; ranks in other containers of this host are "
          "reached over the network");
    has_driver();
    has("/run/.containerenv", "");
    found("container", GPUSYS_VERDICT_MISSING,
          "podman: the kernel has NVIDIA's driver 580.65.06, /dev has no GPU");
    fixed_by("container", "--gpus all");
    has_gpus(1);
    assert_int_equal(look("container").verdict, GPUSYS_VERDICT_OK);
}

/* ---- the calls ---- */

static void looks_are_numbered_and_named(void **state)
{
    (void)state;
    struct gpusys_finding finding = {.size = sizeof finding};
    const char *name, *title;
    uint32_t at = 0;
    for (; gpusys_nccl_look_name(at, &name, &title) == 0; at++) {
        assert_int_equal(gpusys_nccl_preflight(at, &finding), 0);
        assert_string_equal(finding.name, name);
        assert_string_equal(finding.title, title);
        look(name);
    }
    assert_int_equal(at, 16);
    assert_int_equal(gpusys_nccl_look_name(at, &name, &title), -ENOENT);
    assert_int_equal(gpusys_nccl_preflight(at, &finding), -ENOENT);
    assert_int_equal(gpusys_nccl_look("nosuch", &finding), -ENOENT);
}

/* A caller's struct may be shorter than ours, and must have a size. */
static void finding_of_another_size(void **state)
{
    (void)state;
    struct gpusys_finding finding;
    memset(&finding, 'x', sizeof finding);
    finding.size = offsetof(struct gpusys_finding, consequence);
    assert_int_equal(gpusys_nccl_look("fabric", &finding), 0);
    assert_string_equal(finding.evidence, "there is no NVSwitch");
    assert_int_equal(finding.consequence[0], 'x');
    finding.size = 0;
    assert_int_equal(gpusys_nccl_look("fabric", &finding), -EINVAL);
}

static void evidence_is_one_line(void **state)
{
    (void)state;
    with_files();
    driver_fails(-EPERM, 0, "CUDA: x", NULL, "y");
    struct gpusys_finding finding = {.size = sizeof finding, .verdict = GPUSYS_VERDICT_BROKEN};
    gs_found(&finding, GPUSYS_VERDICT_OK, "a\nb\x1b[31m");
    assert_string_equal(finding.evidence, "a?b?[31m");
}

#define ON_A_FIT_ONE(test) cmocka_unit_test_setup_teardown(test, fit_machine, old_machine)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_FIT_ONE(driver_starts),
        ON_A_FIT_ONE(driver_is_not_needed_without_a_gpu),
        ON_A_FIT_ONE(driver_is_not_installed),
        ON_A_FIT_ONE(driver_is_outside_of_the_container),
        ON_A_FIT_ONE(driver_of_the_kernel_alone),
        ON_A_FIT_ONE(driver_is_named_wrongly),
        ON_A_FIT_ONE(driver_is_a_stub),
        ON_A_FIT_ONE(driver_does_not_load),
        ON_A_FIT_ONE(gpus_are_listed),
        ON_A_FIT_ONE(gpu_is_there_twice),
        ON_A_FIT_ONE(gpu_is_closed),
        ON_A_FIT_ONE(library_is_judged),
        ON_A_FIT_ONE(versions_fit),
        ON_A_FIT_ONE(driver_is_older_than_nccl),
        ON_A_FIT_ONE(versions_that_are_not_known),
        ON_A_FIT_ONE(copies_in_the_process),
        ON_A_FIT_ONE(copies_in_files),
        ON_A_FIT_ONE(copies_of_python_and_a_folder_of_ldconfig),
        ON_A_FIT_ONE(gpudirect_has_its_ways),
        ON_A_FIT_ONE(fabric_and_its_manager),
        ON_A_FIT_ONE(container_and_what_it_lacks),
        ON_A_FIT_ONE(looks_are_numbered_and_named),
        ON_A_FIT_ONE(finding_of_another_size),
        ON_A_FIT_ONE(evidence_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
