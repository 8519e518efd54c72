/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libibverbs: what the table of sequences cannot say of it, which is what it does on command. */
#include "../fake/ibverbs_control.h"
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CONTROLS(ROW)                                                                                        \
    ROW(reset)                                                                                               \
    ROW(on)                                                                                                  \
    ROW(calls)                                                                                               \
    ROW(live)                                                                                                \
    ROW(hold)                                                                                                \
    ROW(delay_us)                                                                                            \
    ROW(polls)                                                                                               \
    ROW(release)                                                                                             \
    ROW(outstanding)                                                                                         \
    ROW(event)                                                                                               \
    ROW(remove)                                                                                              \
    ROW(set_gid)                                                                                             \
    ROW(set_lid)                                                                                             \
    ROW(stray)

static struct {
#define MEMBER(name) __typeof__(fake_ibverbs_##name) *name;
    CONTROLS(MEMBER)
#undef MEMBER
} control;

static struct verbs verbs;
static void *library;
static struct ibv_device **devices;
static struct world world;

/* ---- the means ---- */

static void open_device(const char *name)
{
    world = (struct world){.verbs = &verbs};
    for (struct ibv_device **device = devices; *device; device++)
        if (strcmp(verbs.get_device_name(*device), name) == 0)
            world.device = *device;
    assert_non_null(world.device);
    world_open(&world);
    assert_string_equal(world.fault, "");
}

static void run(const char *steps)
{
    char *copy = strdup(steps), *at = NULL;
    for (char *step = strtok_r(copy, ";", &at); step && !world.fault[0]; step = strtok_r(NULL, ";", &at))
        world_step(&world, step);
    free(copy);
    if (world.fault[0])
        fail_msg("%s: %s", steps, world.fault);
}

static int begin(void **state)
{
    (void)state;
    control.reset();
    open_device("fake0");
    return 0;
}

/* Nothing is left behind by any test. */
static int end(void **state)
{
    (void)state;
    control.reset();
    world_close(&world);
    assert_string_equal(world.fault, "");
    assert_int_equal(control.live(FAKE_IBVERBS_KINDS), 0);
    return 0;
}

static struct ibv_context *context(void)
{
    return world.context;
}

static struct ibv_port_attr port(void)
{
    struct ibv_port_attr attr;
    assert_int_equal(verbs_get_ctx(context())->query_port(context(), 1, &attr, sizeof attr), 0);
    return attr;
}

/* ---- failures ---- */

static void test_fails_nth_call(void **state)
{
    (void)state;
    int64_t before = control.calls("ibv_reg_mr");
    assert_int_equal(control.on("ibv_reg_mr", 2, FAKE_IBVERBS_FAIL, ENOSPC), 0);
    assert_int_equal(world_add_mr(&world, "x", "pd", "4096", "l"), 0);
    assert_int_equal(world_add_mr(&world, "y", "pd", "4096", "l"), ENOSPC);
    assert_int_equal(world_add_mr(&world, "z", "pd", "4096", "l"), 0);
    assert_int_equal(control.calls("ibv_reg_mr"), before + 3);
    assert_int_equal(control.on("ibv_no_such", 1, FAKE_IBVERBS_FAIL, ENOSPC), -1);
    assert_int_equal(control.calls("ibv_no_such"), -1);
}

/* One call of the opening fails after the other. */
static void test_fails_each_call(void **state)
{
    (void)state;
    world_close(&world);
    unsigned n = 1;
    for (bool has_failed = true; has_failed; n++) {
        assert_true(n < 100);
        world.fault[0] = 0;
        control.reset();
        control.on("*", n, FAKE_IBVERBS_FAIL, EIO);
        world_open(&world);
        has_failed = world.fault[0];
        world_close(&world);
        assert_int_equal(control.live(FAKE_IBVERBS_KINDS), 0);
    }
    assert_true(n > 12);
    control.reset();
    open_device("fake0");
}

static void test_completes_as_told(void **state)
{
    (void)state;
    run("up");
    control.on("ibv_post_send", 2, FAKE_IBVERBS_COMPLETE, IBV_WC_REM_OP_ERR);
    run("read a here there; wc ca 1 success; read a here there id=2; wc ca 2 rem_op; state a ERR");
}

static void test_fails_posting(void **state)
{
    (void)state;
    run("up");
    control.on("ibv_post_send", 1, FAKE_IBVERBS_FAIL, ENOMEM);
    run("read a here there = ENOMEM bad=0; read a here there; wc ca 1 success");
    control.on("ibv_poll_cq", 1, FAKE_IBVERBS_FAIL, EIO);
    run("fails ca; none ca");
}

static void test_stray_completion(void **state)
{
    (void)state;
    run("up");
    control.on("ibv_post_send", 1, FAKE_IBVERBS_STRAY, 12345);
    run("read a here there; wc ca 12345 success; wc ca 1 success; none ca");
    assert_int_equal(control.stray("fake0", 77), 0);
    run("wc ca 77 success; wc cb 77 success");
    assert_int_equal(control.stray("none", 77), -1);
}

/* ---- waiting ---- */

static void test_holds(void **state)
{
    (void)state;
    run("up");
    control.hold(1);
    run("read a here there x=3; none ca; differ here there 4096");
    assert_int_equal(control.outstanding(), 3);
    assert_int_equal(control.release(1), 1);
    run("wc ca 1 success; same here there 4096; none ca");
    run("err a; flushes ca 2");
    assert_int_equal(control.outstanding(), 0);
}

static void test_delays(void **state)
{
    (void)state;
    control.delay_us(20000);
    run("up; arm ca; read a here there; event ca; wc ca 1 success; ack ca 1");
}

static void test_waits_for_polls(void **state)
{
    (void)state;
    struct ibv_wc wc;
    run("up");
    struct ibv_cq *cq = world_find(&world, "ca", KIND_CQ)->cq;
    control.polls(3);
    run("read a here there");
    for (int i = 0; i < 2; i++)
        assert_int_equal(context()->ops.poll_cq(cq, 1, &wc), 0);
    assert_int_equal(context()->ops.poll_cq(cq, 1, &wc), 1);
    run("read a here there; arm ca; event ca; wc ca 1 success; ack ca 1"); /* whoever sleeps does not poll */
}

/* ---- events ---- */

static void test_port_goes_and_comes(void **state)
{
    (void)state;
    run("up");
    assert_int_equal(control.event("fake0", IBV_EVENT_PORT_ERR, 1), 0);
    assert_int_equal(port().state, IBV_PORT_DOWN);
    run("async 10; read a here there; wc ca 1 retry");
    control.event("fake0", IBV_EVENT_PORT_ACTIVE, 1);
    assert_int_equal(port().state, IBV_PORT_ACTIVE);
    run("async 9; reset a; reset b; up; read a here there; wc ca 1 success");
    assert_int_equal(control.event("none", IBV_EVENT_PORT_ERR, 1), -1);
}

static void test_addresses_change(void **state)
{
    (void)state;
    run("up");
    assert_int_equal(control.set_gid("fake0", 1, 1, NULL), 0);
    run("async 18; gid 1 = ENODATA; read a here there; wc ca 1 retry");
    assert_int_equal(control.set_gid("fake0", 1, 1, "10.1.2.3"), 0);
    run("async 18; gid 1");
    assert_int_equal(control.set_lid("fake0", 1, 99), 0);
    run("async 11");
    assert_int_equal(port().lid, 99);
}

static void test_events_of_queues(void **state)
{
    (void)state;
    run("up; read a here there key=1; wc ca 1 rem_access; async 3"); /* b's */
    control.on("ibv_poll_cq", 1, FAKE_IBVERBS_EVENT, IBV_EVENT_CQ_ERR);
    run("none ca; async 0");
    control.on("ibv_post_send", 1, FAKE_IBVERBS_EVENT, IBV_EVENT_QP_FATAL);
    run("read a here there; async 1; wc ca 1 flush");
}

static void test_removal(void **state)
{
    (void)state;
    run("up");
    control.hold(1);
    run("read a here there x=2");
    assert_int_equal(control.remove("fake0"), 0);
    run("async 8; flushes ca 2; pd x = EIO; mr x pd 4096 l = EIO; reset a = EIO");
    int count;
    struct ibv_device **list = verbs.get_device_list(&count);
    assert_int_equal(count, 2);
    verbs.free_device_list(list);
    errno = 0;
    assert_null(verbs.open_device(world.device));
    assert_int_equal(errno, ENODEV);
}

/* ---- devices ---- */

static void test_infiniband(void **state)
{
    (void)state;
    world_close(&world);
    open_device("ib0");
    assert_int_equal(port().link_layer, IBV_LINK_LAYER_INFINIBAND);
    run("up global=0 lid=7; read a here there len=9000; wc ca 1 success; reset a; reset b;"
        "up global=0 lid=8; read a here there; wc ca 1 retry");
    run("mr x pd 0x20001 l = EINVAL; mr x pd 0x20000 l");
}

static void test_grh_required(void **state)
{
    (void)state;
    world_close(&world);
    open_device("ib1");
    assert_true(port().flags & IBV_QPF_GRH_REQUIRED);
    run("init a; rtr a global=0 lid=9 = EINVAL; rtr a; reset a; up lid=9; read a here there; wc ca 1 "
        "success");
}

static void test_memlock(void **state)
{
    (void)state;
    run("mr x pd 0xe00000 l; mr y pd 0x200000 l = ENOMEM; dereg x; mr y pd 0x200000 l");
}

static void test_dmabuf(void **state)
{
    (void)state;
    __typeof__(ibv_reg_dmabuf_mr) *reg_dmabuf_mr;
    void *address = dlvsym(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
    memcpy(&reg_dmabuf_mr, &address, sizeof address);
    struct ibv_pd *pd = world_find(&world, "pd", KIND_PD)->pd;
    errno = 0;
    assert_null(reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EBADF);
    int fd = memfd_create("memory of a GPU", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 65536), 0);
    struct object *gpu = world_add(&world, "gpu", KIND_MR);
    gpu->mr = reg_dmabuf_mr(pd, 4096, 8192, 0x100000, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(gpu->mr);
    gpu->memory = (void *)0x100000; /* as the peer calls it */
    run("up; write a here gpu len=8192; wc ca 1 success");
    gpu->memory = NULL;
    unsigned char found[8193];
    assert_int_equal(pread(fd, found, sizeof found, 4096), sizeof found);
    assert_memory_equal(found, world_find(&world, "here", KIND_MR)->memory, 8192);
    assert_int_equal(found[8192], 0);
    close(fd);
}

static void test_old_version_is_refused(void **state)
{
    (void)state;
    void *old = dlvsym(library, "ibv_open_device", "IBVERBS_1.0");
    assert_non_null(old);
    assert_ptr_not_equal(old, dlvsym(library, "ibv_open_device", "IBVERBS_1.1"));
}

/* ---- two processes ---- */

struct introduction {
    uint32_t qpn, rkey;
    void *memory;
};

static struct introduction introduce(void)
{
    const struct object *there = world_find(&world, "there", KIND_MR);
    return (struct introduction){world_find(&world, "a", KIND_QP)->qp->qp_num, there->mr->rkey,
                                 there->memory};
}

static void face(const struct introduction *other)
{
    char steps[100];
    snprintf(steps, sizeof steps, "init a; rtr a qpn=%u; rts a", other->qpn);
    run(steps);
    struct object *far = world_add(&world, "far", KIND_MR);
    far->dead_mr.rkey = other->rkey;
    far->mr = &far->dead_mr;
    far->memory = other->memory;
}

/* The other process: memory of the letter O, connected, and then nothing but alive. */
static void be_the_other(int in, int out)
{
    struct introduction mine, other;
    open_device("fake0");
    memset(world_find(&world, "there", KIND_MR)->memory, 'O', REGION_BYTES);
    mine = introduce();
    if (write(out, &mine, sizeof mine) != sizeof mine || read(in, &other, sizeof other) != sizeof other)
        _exit(1);
    face(&other);
    run("recv a there len=100 id=3; arm ca");
    char ready = 'r';
    if (write(out, &ready, 1) != 1)
        _exit(1);
    run("event ca; wc ca 3 success");
    bool is_there = memcmp(world_find(&world, "there", KIND_MR)->memory, "hhhh", 4) == 0;
    ready = is_there ? 'y' : 'n';
    if (write(out, &ready, 1) != 1)
        _exit(1);
    pause();
}

static void expect_byte(int fd, char wanted)
{
    char found = 0;
    assert_int_equal(read(fd, &found, 1), 1);
    assert_int_equal(found, wanted);
}

static void test_two_processes(void **state)
{
    (void)state;
    int to[2], from[2];
    assert_int_equal(pipe(to) | pipe(from), 0);
    pid_t child = fork();
    if (child == 0) {
        be_the_other(to[0], from[1]);
        _exit(1);
    }
    struct introduction mine = introduce(), other;
    unsigned char wanted[REGION_BYTES];
    memset(wanted, 'O', sizeof wanted);
    assert_int_equal(read(from[0], &other, sizeof other), sizeof other);
    assert_int_equal(write(to[1], &mine, sizeof mine), sizeof mine);
    face(&other);
    expect_byte(from[0], 'r');
    run("read a here far len=65536 pieces=4; wc ca 1 success");
    assert_memory_equal(world_find(&world, "here", KIND_MR)->memory, wanted, sizeof wanted);
    memset(world_find(&world, "here", KIND_MR)->memory, 'h', REGION_BYTES);
    run("send a here far len=4; wc ca 1 success");
    expect_byte(from[0], 'y');
    run("write a here far len=65536; wc ca 1 success; read a there far len=65536 = 0; wc ca 1 success; same "
        "here there 65536");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    run("read a here far; wc ca 1 retry");
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
}

static void load_controls(const char *path)
{
    library = dlopen(path, RTLD_NOW);
    if (!library)
        exit(77);
#define LOAD(name)                                                                                           \
    do {                                                                                                     \
        void *address = dlsym(library, "fake_ibverbs_" #name);                                               \
        memcpy(&control.name, &address, sizeof address);                                                     \
    } while (0);
    CONTROLS(LOAD)
#undef LOAD
}

int main(int argc, char **argv)
{
    if (argc != 2 || !verbs_load(&verbs, argv[1]))
        return 77;
    load_controls(argv[1]);
    devices = verbs.get_device_list(NULL);
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_fails_nth_call),   TEST(test_fails_each_call),        TEST(test_completes_as_told),
        TEST(test_fails_posting),    TEST(test_stray_completion),       TEST(test_holds),
        TEST(test_delays),           TEST(test_waits_for_polls),        TEST(test_port_goes_and_comes),
        TEST(test_addresses_change), TEST(test_events_of_queues),       TEST(test_removal),
        TEST(test_infiniband),       TEST(test_grh_required),           TEST(test_memlock),
        TEST(test_dmabuf),           TEST(test_old_version_is_refused), TEST(test_two_processes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    verbs.free_device_list(devices);
    return failed;
}
