/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Looks at limits, PCI, the network and NCCL's settings, over a machine of files. No library is loaded. */
#include "preflight_play.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

/* ---- what the kernel says, as the tests want it ---- */

static struct {
    uint64_t shm_bytes, shm_free_bytes;
    int shm_error, lock_error;
    rlim_t memlock, files;
} host;

struct card {
    const char *name, *address;
    unsigned flags;
};
static const struct card *cards;
static unsigned n_cards;

#define CARDS(...) set_cards((const struct card[]){__VA_ARGS__}, sizeof((const struct card[]){__VA_ARGS__}))

static struct card kept_cards[8];

static void set_cards(const struct card *list, size_t bytes)
{
    memcpy(kept_cards, list, bytes);
    cards = kept_cards;
    n_cards = (unsigned)(bytes / sizeof *list);
}

static const unsigned up = IFF_UP | IFF_RUNNING;

int __wrap_statvfs64(const char *path, struct statvfs *info);
int __wrap_getrlimit64(int resource, struct rlimit *limit);
int __wrap_mlock2(const void *address, size_t length, unsigned flags);
int __wrap_getifaddrs(struct ifaddrs **ret_list);
void __wrap_freeifaddrs(struct ifaddrs *list);
int __wrap_gpusys_nccl_table(const struct gpusys_nccl **ret_nccl, struct gpusys_error *error);
const char *__wrap_gpusys_nccl_library(void);

int __wrap_statvfs64(const char *path, struct statvfs *info)
{
    assert_non_null(strstr(path, "/dev/shm"));
    errno = host.shm_error;
    *info = (struct statvfs){
        .f_frsize = 4096, .f_blocks = host.shm_bytes / 4096, .f_bavail = host.shm_free_bytes / 4096};
    return host.shm_error ? -1 : 0;
}

int __wrap_getrlimit64(int resource, struct rlimit *limit)
{
    limit->rlim_cur = limit->rlim_max = resource == RLIMIT_NOFILE ? host.files : host.memlock;
    return 0;
}

int __wrap_mlock2(const void *address, size_t length, unsigned flags)
{
    (void)address, (void)length, (void)flags;
    errno = host.lock_error;
    return host.lock_error ? -1 : 0;
}

int __wrap_getifaddrs(struct ifaddrs **ret_list)
{
    static struct ifaddrs list[8];
    static struct sockaddr_storage addresses[8];
    for (unsigned i = 0; i < n_cards; i++) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&addresses[i];
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&addresses[i];
        list[i] = (struct ifaddrs){.ifa_next = i + 1 < n_cards ? &list[i + 1] : NULL,
                                   .ifa_name = (char *)(uintptr_t)cards[i].name,
                                   .ifa_flags = cards[i].flags};
        if (!cards[i].address)
            continue;
        list[i].ifa_addr = (struct sockaddr *)&addresses[i];
        if (inet_pton(AF_INET, cards[i].address, &v4->sin_addr) == 1)
            v4->sin_family = AF_INET;
        else if (inet_pton(AF_INET6, cards[i].address, &v6->sin6_addr) == 1)
            v6->sin6_family = AF_INET6;
        else
            fail_msg("%s is no address", cards[i].address);
    }
    *ret_list = n_cards ? list : NULL;
    return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list)
{
    (void)list;
}

static const char *library; /* NULL: there is none */

int __wrap_gpusys_nccl_table(const struct gpusys_nccl **ret_nccl, struct gpusys_error *error)
{
    (void)error;
    *ret_nccl = NULL;
    return library ? 0 : -ENOENT;
}

const char *__wrap_gpusys_nccl_library(void)
{
    return library;
}

static int usual_host(void **state)
{
    host.shm_bytes = host.shm_free_bytes = (uint64_t)8 << 30;
    host.shm_error = host.lock_error = 0;
    host.memlock = 8 << 20;
    host.files = 1048576;
    library = NULL;
    CARDS({"lo", "127.0.0.1", up}, {"eth0", "10.0.0.5", up});
    int code = new_machine(state);
    has("/dev/shm/x", "");
    return code;
}

/* ---- shm ---- */

static void shm_has_room(void **state)
{
    (void)state;
    has_gpus(2);
    found("shm", GPUSYS_VERDICT_OK, "8.0 GiB, 8.0 GiB of it free, for 2 GPUs");
    host.shm_bytes = 0;
    found("shm", GPUSYS_VERDICT_OK, "no limit, for 2 GPUs");
}

static void shm_as_docker_leaves_it(void **state)
{
    (void)state;
    host.shm_bytes = host.shm_free_bytes = 64 << 20;
    found("shm", GPUSYS_VERDICT_NOT_NEEDED, "64 MiB, 64 MiB of it free");
    has_gpus(1);
    found("shm", GPUSYS_VERDICT_MISSING, "64 MiB, 64 MiB of it free, for 1 GPU");
    fixed_by("shm", "mount -o remount,size=8G /dev/shm");
    has("/.dockerenv", "");
    fixed_by("shm", "docker run --shm-size=1g");
}

static void shm_is_full(void **state)
{
    (void)state;
    has_gpus(8);
    host.shm_free_bytes = 511 << 20;
    found("shm", GPUSYS_VERDICT_MISSING, "8.0 GiB, 511 MiB of it free, for 8 GPUs");
    host.shm_free_bytes = 512 << 20;
    found("shm", GPUSYS_VERDICT_OK, "8.0 GiB, 512 MiB of it free, for 8 GPUs");
}

static void shm_is_not_there(void **state)
{
    (void)state;
    host.shm_error = ENOENT;
    found("shm", GPUSYS_VERDICT_NOT_NEEDED, "/dev/shm: No such file or directory");
    has_gpus(1);
    found("shm", GPUSYS_VERDICT_MISSING, "/dev/shm: No such file or directory");
}

/* ---- limits ---- */

static void memlock_matters_with_rdma(void **state)
{
    (void)state;
    has_gpus(1);
    host.lock_error = ENOMEM;
    found("memlock", GPUSYS_VERDICT_NOT_NEEDED, "there is no RDMA device (the limit is 8 MiB)");
    has("/sys/class/infiniband/mlx5_0/x", "");
    has("/sys/class/infiniband/mlx5_1/x", "");
    found("memlock", GPUSYS_VERDICT_MISSING,
          "locking 1 GiB: Cannot allocate memory (the limit is 8 MiB), and there are 2 RDMA devices");
    fixed_by("memlock", "ulimit -l unlimited");
    has("/.dockerenv", "");
    fixed_by("memlock", "docker run --ulimit memlock=-1");
    host.lock_error = 0;
    host.memlock = RLIM_INFINITY;
    found("memlock", GPUSYS_VERDICT_OK, "1 GiB can be locked (the limit is unlimited)");
}

static void open_files(void **state)
{
    (void)state;
    found("open-files", GPUSYS_VERDICT_OK, "1048576 open descriptors, 1048576 at most");
    host.files = 1024;
    found("open-files", GPUSYS_VERDICT_NOT_NEEDED, "1024 open descriptors, 1024 at most");
    has_gpus(1);
    found("open-files", GPUSYS_VERDICT_MISSING, "1024 open descriptors, 1024 at most");
    fixed_by("open-files", "65536");
}

/* ---- PCI ---- */

static void two_gpus_below(const char *bridges)
{
    char place[128];
    for (int i = 0; i < 2; i++) {
        snprintf(place, sizeof place, "%s%d.0/0000:0%d:00.0", bridges, i + 1, i + 3);
        has_pci(place, "0x10de", "0x030200");
    }
}

static void has_group(const char *address, const char *type)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/iommu_group/type", address);
    has(path, type);
}

static void iommu_translates(void **state)
{
    (void)state;
    has("/sys/class/iommu/dmar0/x", "");
    has("/proc/cmdline", "root=/dev/sda1 secret=1 intel_iommu=on\n");
    found("iommu", GPUSYS_VERDICT_NOT_NEEDED, "no NVIDIA GPU; 1 IOMMU");
    two_gpus_below("0000:00:0");
    found("iommu", GPUSYS_VERDICT_OK,
          "on (1): 0 GPUs passed through, 0 translated; kernel command line: intel_iommu=on");
    has_group("0000:03:00.0", "DMA-FQ\n");
    has_group("0000:04:00.0", "DMA-FQ\n");
    found("iommu", GPUSYS_VERDICT_MISSING,
          "on (1): 0 GPUs passed through, 2 translated, type DMA-FQ; kernel command line: intel_iommu=on");
    fixed_by("iommu", "iommu=pt");
    has_group("0000:03:00.0", "identity\n");
    has_group("0000:04:00.0", "identity\n");
    found("iommu", GPUSYS_VERDICT_OK,
          "on (1): 2 GPUs passed through, 0 translated; kernel command line: intel_iommu=on");
}

static void iommu_of_arm_belongs_there(void **state)
{
    (void)state;
    has("/sys/class/iommu/smmu3.0x0000000011000000/x", "");
    two_gpus_below("0000:00:0");
    has_group("0000:03:00.0", "DMA-FQ\n");
    has_group("0000:04:00.0", "DMA-FQ\n");
    found("iommu", GPUSYS_VERDICT_OK, "on (1): 0 GPUs passed through, 2 translated, type DMA-FQ");
}

static void iommu_is_off(void **state)
{
    (void)state;
    two_gpus_below("0000:00:0");
    has("/proc/cmdline", "quiet iommu=off\n");
    found("iommu", GPUSYS_VERDICT_OK, "off; kernel command line: iommu=off");
}

/* The configuration of a bridge: another capability first, then access control with this in its register. */
static void has_config(const char *bridge, size_t bytes, uint16_t control)
{
    uint8_t config[4096] = {0};
    char path[128];
    const uint8_t other[] = {0x01, 0x00, 0x01, 0x15};           /* version 1, the next one at 0x150 */
    const uint8_t acs[] = {0x0d, 0x00, 0x01, 0x00, 0x1f, 0x00}; /* the last one */
    memcpy(config + 0x100, other, sizeof other);
    memcpy(config + 0x150, acs, sizeof acs);
    config[0x156] = (uint8_t)control;
    config[0x157] = (uint8_t)(control >> 8);
    snprintf(path, sizeof path, "/sys/devices/pci0000:00/%s/config", bridge);
    has_bytes(path, config, bytes);
}

static void acs_of_bridges(void **state)
{
    (void)state;
    found("acs", GPUSYS_VERDICT_NOT_NEEDED, "no NVIDIA GPU on PCI");
    two_gpus_below("0000:00:01.0/0000:02:0"); /* a root port, and a switch's port for each */
    has_config("0000:00:01.0", 4096, 0);
    has_config("0000:00:01.0/0000:02:01.0", 4096, 0x11); /* validates the source, which is no harm */
    has_config("0000:00:01.0/0000:02:02.0", 4096, 0);
    found("acs", GPUSYS_VERDICT_OK, "none of 3 bridges above the GPUs redirects");
    has_config("0000:00:01.0/0000:02:02.0", 4096, 0x1d);
    found("acs", GPUSYS_VERDICT_MISSING, "1 of 3 bridges above the GPUs redirect: 0000:02:02.0");
    fixed_by("acs", "setpci -s 0000:02:02.0 ECAP_ACS+6.w=0");
}

static void acs_is_for_root_to_read(void **state)
{
    (void)state;
    two_gpus_below("0000:00:0");
    has_config("0000:00:01.0", 64, 0);
    found("acs", GPUSYS_VERDICT_MISSING, "not known: only root can read it (2 of 2 bridges above the GPUs)");
    fixed_by("acs", "root");
}

/* A list of capabilities that leads back to itself ends all the same. */
static void acs_of_a_mad_bridge(void **state)
{
    (void)state;
    uint8_t config[4096] = {0};
    two_gpus_below("0000:00:0");
    memcpy(config + 0x100, (const uint8_t[]){0x01, 0x00, 0x01, 0x10}, 4);
    has_bytes("/sys/devices/pci0000:00/0000:00:01.0/config", config, sizeof config);
    memcpy(config + 0x100, (const uint8_t[]){0x01, 0x00, 0xc1, 0xff}, 4); /* the last bytes */
    has_bytes("/sys/devices/pci0000:00/0000:00:02.0/config", config, sizeof config);
    found("acs", GPUSYS_VERDICT_OK, "none of 2 bridges above the GPUs redirects");
}

/* ---- interface ---- */

static void interface_by_default(void **state)
{
    (void)state;
    has_gpus(1);
    found("interface", GPUSYS_VERDICT_OK, "eth0, 10.0.0.5; NCCL_SOCKET_IFNAME is not set");
    CARDS({"lo", "127.0.0.1", up}, {"eth0", "10.0.0.5", up}, {"ib0", "10.1.0.5", up});
    found("interface", GPUSYS_VERDICT_OK, "ib0, 10.1.0.5; NCCL_SOCKET_IFNAME is not set");
    CARDS({"lo", "127.0.0.1", up}, {"veth1", "172.18.0.1", up}, {"eth0", "10.0.0.5", up});
    found("interface", GPUSYS_VERDICT_MISSING,
          "NCCL would take veth1, 172.18.0.1; there are lo 127.0.0.1, veth1 172.18.0.1, eth0 10.0.0.5");
    fixed_by("interface", "export NCCL_SOCKET_IFNAME=eth0");
}

static void interface_that_leads_nowhere(void **state)
{
    (void)state;
    CARDS({"lo", "127.0.0.1", up}, {"docker0", "172.17.0.1", up});
    found("interface", GPUSYS_VERDICT_NOT_NEEDED,
          "NCCL would take docker0, 172.17.0.1; there are lo 127.0.0.1, docker0 172.17.0.1");
    has_gpus(1);
    found("interface", GPUSYS_VERDICT_MISSING,
          "NCCL would take docker0, 172.17.0.1; there are lo 127.0.0.1, docker0 172.17.0.1");
    fixed_by("interface", "--network host");
    CARDS({"lo", "127.0.0.1", up});
    struct gpusys_finding finding = look("interface");
    assert_int_equal(finding.verdict, GPUSYS_VERDICT_MISSING);
    assert_string_equal(finding.consequence, "ranks on this host meet; those on other hosts cannot");
    CARDS({"eth0", NULL, up});
    found("interface", GPUSYS_VERDICT_BROKEN, "no interface has an address; there are eth0 without address");
}

static void interface_that_is_named(void **state)
{
    (void)state;
    CARDS({"lo", "127.0.0.1", up}, {"eth0", "10.0.0.5", up}, {"eth1", "10.1.0.5", up}, {"eth2", NULL, up},
          {"eth3", "10.3.0.5", IFF_UP});
    static const struct {
        const char *value, *shown;
    } good[] = {{"eth", "eth0, 10.0.0.5"},       {"=eth1", "eth1, 10.1.0.5"},
                {"ib,eth1", "eth1, 10.1.0.5"},   {"^eth0,lo", "eth1, 10.1.0.5"},
                {"^=eth0,lo", "eth1, 10.1.0.5"}, {"eth1:4711", "eth1, 10.1.0.5"},
                {"=eth,eth1", "eth1, 10.1.0.5"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char expected[128];
        setenv("NCCL_SOCKET_IFNAME", good[i].value, 1);
        snprintf(expected, sizeof expected, "NCCL_SOCKET_IFNAME=%s: %s", good[i].value, good[i].shown);
        found("interface", GPUSYS_VERDICT_OK, expected);
    }
    setenv("NCCL_SOCKET_IFNAME", "e", 1); /* NCCL takes no notice of a single letter */
    found("interface", GPUSYS_VERDICT_OK, "eth0, 10.0.0.5; NCCL_SOCKET_IFNAME is not set");
}

static void interface_that_is_not_there(void **state)
{
    (void)state;
    CARDS({"lo", "127.0.0.1", up}, {"eth0", "10.0.0.5", up}, {"eth2", NULL, up},
          {"eth3", "10.3.0.5", IFF_UP});
    static const struct {
        const char *value, *evidence;
    } bad[] = {
        {"ens1",
         "NCCL_SOCKET_IFNAME=ens1: no interface has a name that begins so; there are lo 127.0.0.1, eth0 "
         "10.0.0.5, eth2 without address, eth3 down 10.3.0.5"},
        {"=eth",
         "NCCL_SOCKET_IFNAME==eth: no interface is called that; there are lo 127.0.0.1, eth0 10.0.0.5, "
         "eth2 without address, eth3 down 10.3.0.5"},
        {"^eth,lo",
         "NCCL_SOCKET_IFNAME=^eth,lo: no interface is left; there are lo 127.0.0.1, eth0 10.0.0.5, "
         "eth2 without address, eth3 down 10.3.0.5"},
        {"eth2", "NCCL_SOCKET_IFNAME=eth2: eth2 has no address; there are lo 127.0.0.1, eth0 10.0.0.5, eth2 "
                 "without address, eth3 down 10.3.0.5"},
        {"eth3", "NCCL_SOCKET_IFNAME=eth3: eth3, 10.3.0.5, which is down"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("NCCL_SOCKET_IFNAME", bad[i].value, 1);
        found("interface", GPUSYS_VERDICT_BROKEN, bad[i].evidence);
        fixed_by("interface", "export NCCL_SOCKET_IFNAME=eth0");
    }
}

static void interface_of_the_family_that_is_wanted(void **state)
{
    (void)state;
    CARDS({"lo", "::1", up}, {"eth0", "10.0.0.5", up}, {"eth1", "fd00::5", up});
    setenv("NCCL_SOCKET_FAMILY", "AF_INET6", 1);
    found("interface", GPUSYS_VERDICT_OK, "eth1, fd00::5; NCCL_SOCKET_IFNAME is not set");
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    found(
        "interface", GPUSYS_VERDICT_BROKEN,
        "NCCL_SOCKET_IFNAME=lo: lo has no address; there are lo without address, eth0 without address, eth1 "
        "fd00::5");
}

/* ---- RDMA devices ---- */

static void rdma_devices(void **state)
{
    (void)state;
    has_gpus(1);
    found("rdma", GPUSYS_VERDICT_NOT_NEEDED, "the kernel has no RDMA device: NCCL uses sockets");
    setenv("NCCL_IB_HCA", "mlx5", 1);
    found("rdma", GPUSYS_VERDICT_BROKEN, "NCCL_IB_HCA=mlx5, and the kernel has no RDMA device");
    has("/sys/class/infiniband/mlx5_0/x", "");
    has("/sys/class/infiniband/mlx5_1/x", "");
    found("rdma", GPUSYS_VERDICT_MISSING, "the kernel has mlx5_0 mlx5_1, /dev/infiniband has no node of it");
    fixed_by("rdma", "--device=/dev/infiniband");
    has("/dev/infiniband/uverbs0", "");
    found("rdma", GPUSYS_VERDICT_OK, "mlx5_0 mlx5_1; NCCL_IB_HCA=mlx5");
    setenv("NCCL_IB_HCA", "^=mlx5_0", 1);
    found("rdma", GPUSYS_VERDICT_OK, "mlx5_1; NCCL_IB_HCA=^=mlx5_0");
    setenv("NCCL_IB_HCA", "=mlx5_0:1,mlx5_7:1", 1);
    found("rdma", GPUSYS_VERDICT_MISSING,
          "NCCL_IB_HCA==mlx5_0:1,mlx5_7:1: there is no mlx5_7; taken: mlx5_0");
    fixed_by("rdma", "there are mlx5_0 mlx5_1");
    setenv("NCCL_IB_HCA", "mlx4", 1);
    found("rdma", GPUSYS_VERDICT_BROKEN, "NCCL_IB_HCA=mlx4 leaves none of mlx5_0 mlx5_1");
    unsetenv("NCCL_IB_HCA");
    setenv("NCCL_IB_DISABLE", "1", 1);
    found("rdma", GPUSYS_VERDICT_MISSING, "NCCL_IB_DISABLE is set, and there are mlx5_0 mlx5_1");
    setenv("NCCL_IB_DISABLE", "0", 1);
    found("rdma", GPUSYS_VERDICT_OK, "mlx5_0 mlx5_1");
}

/* ---- settings ---- */

static void settings_are_shown(void **state)
{
    (void)state;
    char expected[300];
    found("environment", GPUSYS_VERDICT_OK, "no NCCL_ name is set; no configuration file");
    setenv("NCCL_DEBUG", "INFO", 1);
    has("/etc/nccl.conf", "# remark\nNCCL_DEBUG=WARN\nNCCL_IB_HCA=mlx5_0\nOTHER=1\n");
    snprintf(expected, sizeof expected,
             "NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0 in %s/etc/nccl.conf; read: %s/etc/nccl.conf", play_root,
             play_root);
    found("environment", GPUSYS_VERDICT_OK, expected);
}

/* The environment first, then the user's file, then the host's. */
static void settings_have_an_order(void **state)
{
    (void)state;
    char value[GS_SETTING_BYTES], source[GS_PATH_BYTES], path[GS_PATH_BYTES];
    assert_false(gs_nccl_setting("NCCL_IB_HCA", value, NULL));
    has("/etc/nccl.conf", "NCCL_IB_HCA=host");
    assert_true(gs_nccl_setting("NCCL_IB_HCA", value, source));
    assert_string_equal(value, "host");
    assert_string_equal(source, gs_path(path, "/etc/nccl.conf"));
    has("/mine.conf", "NCCL_IB_HCA=mine\nNCCL_SOCKET_IFNAME==eth0\n");
    setenv("NCCL_CONF_FILE", "/mine.conf", 1);
    assert_true(gs_nccl_setting("NCCL_IB_HCA", value, source));
    assert_string_equal(value, "mine");
    assert_string_equal(source, gs_path(path, "/mine.conf"));
    assert_true(gs_nccl_setting("NCCL_SOCKET_IFNAME", value, NULL));
    assert_string_equal(value, "=eth0");
    setenv("NCCL_IB_HCA", "", 1);
    assert_true(gs_nccl_setting("NCCL_IB_HCA", value, source));
    assert_string_equal(value, "");
    assert_string_equal(source, "");
}

static void setting_that_is_misspelt(void **state)
{
    (void)state;
    setenv("NCCL_P2P_DISABEL", "1", 1);
    found("environment", GPUSYS_VERDICT_MISSING, "NCCL does not know NCCL_P2P_DISABEL=1");
    fixed_by("environment", "did you mean NCCL_P2P_DISABLE?");
    unsetenv("NCCL_P2P_DISABEL");
    setenv("NCCL_QUITE_OTHER", "1", 1);
    found("environment", GPUSYS_VERDICT_MISSING, "NCCL does not know NCCL_QUITE_OTHER=1");
    fixed_by("environment", "unset NCCL_QUITE_OTHER");
}

/* This program plays a library that is newer than our table. */
static const char future[] = "NCCL_FUTURE_SETTING";

static void setting_that_only_the_library_knows(void **state)
{
    (void)state;
    setenv(future, "1", 1);
    found("environment", GPUSYS_VERDICT_MISSING, "NCCL does not know NCCL_FUTURE_SETTING=1");
    library = "/proc/self/exe";
    found("environment", GPUSYS_VERDICT_OK, "NCCL_FUTURE_SETTING=1; no configuration file");
}

static void configuration_file_that_is_not_there(void **state)
{
    (void)state;
    setenv("NCCL_CONF_FILE", "/nowhere.conf", 1);
    found("environment", GPUSYS_VERDICT_MISSING, "NCCL_CONF_FILE=/nowhere.conf: there is no such file");
}

static void names_of_settings(void **state)
{
    (void)state;
    static const char *const known[] = {"NCCL_DEBUG",      "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA",
                                        "NCCL_WIN_STRIDE", "NCCL_ALGO",          "NCCL_CHECKS_DISABLE"};
    static const char *const foreign[] = {"NCCL_VERSION", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_TESTS_DEVICE",
                                          "NCCL_FASTRAK_NUM_FLOWS"};
    static const char *const unknown[] = {"NCCL_", "NCCL_DEBUGG", "NCCL_IFNAME", "nccl_debug", "DEBUG"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(gs_nccl_name(known[i]), GS_NAME_NCCL);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        assert_int_equal(gs_nccl_name(foreign[i]), GS_NAME_OTHERS);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_int_equal(gs_nccl_name(unknown[i]), GS_NAME_UNKNOWN);
}

static void names_that_are_near(void **state)
{
    (void)state;
    static const struct {
        const char *word, *near;
    } rows[] = {{"NCCL_SOCKET_IFNAM", "SOCKET_IFNAME"},
                {"NCCL_SOKET_IFNAME", "SOCKET_IFNAME"},
                {"NCCL_DISABLE_P2P", "P2P_DISABLE"},
                {"NCCL_DISABLE_IB", "IB_DISABLE"},
                {"NCCL_DEBUGG", "DEBUG"},
                {"NCCL_DEBUG_SUBSYSTEM", "DEBUG_SUBSYS"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows - 1; i++)
        assert_string_equal(gs_nccl_name_near(rows[i].word), rows[i].near);
    assert_null(gs_nccl_name_near("NCCL_TIMEOUT"));
    assert_null(gs_nccl_name_near("NCCL_"));
    assert_null(gs_nccl_name_near("DEBUG"));
    assert_null(
        gs_nccl_name_near("NCCL_A_NAME_THAT_IS_LONGER_THAN_ANY_NAME_THAT_NCCL_READS_FROM_ITS_ENVIRONMENT"));
}

/* ---- constants of a file ---- */

__attribute__((used)) static const char one_mark[] = "a mark: 1", other_mark[] = "a mark: 2+cuda9";

static void strings_of_a_library(void **state)
{
    (void)state;
    char rest[16], start[17];
    snprintf(start, sizeof start, "%s", future);
    assert_int_equal(gs_file_has_string("/proc/self/exe", future), 0);
    assert_int_equal(gs_file_has_string("/proc/self/exe", start), -ENOENT);
    assert_int_equal(gs_file_has_string("/proc/self/exe", future + 5), -ENOENT); /* the tail of a word */
    assert_int_equal(gs_file_string("/proc/self/exe", "a mark: ", "+cuda", rest, sizeof rest), 0);
    assert_string_equal(rest, "2+cuda9");
    assert_int_equal(gs_file_string("/proc/self/exe", "a mark: ", "nosuch", rest, sizeof rest), -ENOENT);
    assert_int_equal(gs_file_has_string("/nonexistent", future), -ENOENT);
    assert_int_equal(gs_file_has_string("/proc/self", future), -ENOEXEC);
}

/* Files that are cut or wrong: an error, and nothing is read beyond their end. */
static void strings_of_a_damaged_file(void **state)
{
    (void)state;
    char path[GS_PATH_BYTES];
    static char program[1 << 23];
    FILE *file = fopen("/proc/self/exe", "r");
    assert_non_null(file);
    size_t size = fread(program, 1, sizeof program, file);
    fclose(file);
    assert_true(size > 64);
    gs_path(path, "/damaged");
    for (size_t length = 0; length < 64; length += 7) {
        has_bytes("/damaged", program, length);
        assert_int_equal(gs_file_has_string(path, future), -ENOEXEC);
    }
    for (size_t at = 32; at < 64; at++) { /* where the sections are, how many, how large, which has names */
        char kept = program[at];
        program[at] = (char)~kept;
        has_bytes("/damaged", program, size);
        int code = gs_file_has_string(path, future);
        assert_true(code == 0 || code == -ENOEXEC || code == -ENOENT);
        program[at] = kept;
    }
}

#define ON_A_HOST(test) cmocka_unit_test_setup_teardown(test, usual_host, old_machine)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_HOST(shm_has_room),
        ON_A_HOST(shm_as_docker_leaves_it),
        ON_A_HOST(shm_is_full),
        ON_A_HOST(shm_is_not_there),
        ON_A_HOST(memlock_matters_with_rdma),
        ON_A_HOST(open_files),
        ON_A_HOST(iommu_translates),
        ON_A_HOST(iommu_of_arm_belongs_there),
        ON_A_HOST(iommu_is_off),
        ON_A_HOST(acs_of_bridges),
        ON_A_HOST(acs_is_for_root_to_read),
        ON_A_HOST(acs_of_a_mad_bridge),
        ON_A_HOST(interface_by_default),
        ON_A_HOST(interface_that_leads_nowhere),
        ON_A_HOST(interface_that_is_named),
        ON_A_HOST(interface_that_is_not_there),
        ON_A_HOST(interface_of_the_family_that_is_wanted),
        ON_A_HOST(rdma_devices),
        ON_A_HOST(settings_are_shown),
        ON_A_HOST(settings_have_an_order),
        ON_A_HOST(setting_that_is_misspelt),
        ON_A_HOST(setting_that_only_the_library_knows),
        ON_A_HOST(configuration_file_that_is_not_there),
        ON_A_HOST(names_of_settings),
        ON_A_HOST(names_that_are_near),
        ON_A_HOST(strings_of_a_library),
        ON_A_HOST(strings_of_a_damaged_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
