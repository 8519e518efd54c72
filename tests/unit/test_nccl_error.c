/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What NCCL's results are said to mean, over a table of our own that says what we want. */
#include "gpu/nccl.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static struct gpusys_nccl said;
static const char *last_error;
static bool is_said;

const struct gpusys_nccl *__wrap_gs_nccl_loaded(void);

const struct gpusys_nccl *__wrap_gs_nccl_loaded(void)
{
    return is_said ? &said : NULL;
}

const char *__wrap_gpusys_nccl_library(void);

const char *__wrap_gpusys_nccl_library(void)
{
    return "/theirs/libnccl.so.2";
}

static const char *say_last_error(struct ncclComm *comm)
{
    (void)comm;
    return last_error;
}

static const char *say_result(int result)
{
    return result == GPUSYS_NCCL_SYSTEM_ERROR ? "a system error of theirs" : "another of theirs";
}

static int say_version(int *version)
{
    *version = 22809;
    return 0;
}

static int begin_said(void **state)
{
    (void)state;
    said = (struct gpusys_nccl){
        .get_last_error = say_last_error, .get_error_string = say_result, .get_version = say_version};
    is_said = true;
    return 0;
}

static void without_a_library_the_words_are_ours(void **state)
{
    (void)state;
    struct gpusys_error error;
    is_said = false;
    assert_int_equal(gpusys_nccl_error(GPUSYS_NCCL_REMOTE_ERROR, "ncclSend", NULL, &error), -EIO);
    assert_string_equal(error.message, "ncclSend: remote error");
    assert_string_equal(error.detail, "");
    assert_int_equal(error.domain, GPUSYS_DOMAIN_NCCL);
    assert_int_equal(error.foreign, GPUSYS_NCCL_REMOTE_ERROR);
}

static void results_are_errnos(void **state)
{
    (void)state;
    static const int codes[] = {0, -EIO, -EIO, -EPROTO, -EINVAL, -EINVAL, -EIO, -EAGAIN, -ETIMEDOUT, -EIO};
    last_error = "";
    for (int result = 0; result < (int)COUNT_OF(codes); result++) {
        struct gpusys_error error = {.code = 77};
        assert_int_equal(gpusys_nccl_error(result, "ncclSend", NULL, NULL), codes[result]);
        assert_int_equal(gpusys_nccl_error(result, "ncclSend", NULL, &error), codes[result]);
        assert_int_equal(error.code, result ? codes[result] : 77); /* success leaves it alone */
        if (!result)
            continue;
        assert_int_equal(error.domain, GPUSYS_DOMAIN_NCCL);
        assert_int_equal(error.foreign, result);
        assert_string_equal(error.cause, "");
    }
    assert_int_equal(gpusys_nccl_error(-1, "ncclSend", NULL, NULL), -EIO);
}

static void an_error_has_their_words(void **state)
{
    (void)state;
    struct gpusys_error error;
    last_error = "Call to\tsomething failed\nsecond line";
    assert_int_equal(gpusys_nccl_error(GPUSYS_NCCL_SYSTEM_ERROR, "ncclCommInitRank", NULL, &error), -EIO);
    assert_string_equal(error.message, "ncclCommInitRank: a system error of theirs");
    assert_non_null(
        strstr(error.detail, "last error\tCall to?something failed\nNCCL\t2.28.9, /theirs/libnccl.so.2"));
    assert_string_equal(error.hint, "run again with NCCL_DEBUG=INFO to see more");
    last_error = NULL;
    assert_int_equal(gpusys_nccl_error(GPUSYS_NCCL_SYSTEM_ERROR, "ncclCommInitRank", NULL, &error), -EIO);
    assert_null(strstr(error.detail, "last error"));
    said.get_last_error = NULL; /* before 2.13 */
    assert_int_equal(gpusys_nccl_error(GPUSYS_NCCL_SYSTEM_ERROR, "ncclCommInitRank", NULL, &error), -EIO);
    assert_null(strstr(error.detail, "last error"));
}

static void progress_is_no_trouble(void **state)
{
    (void)state;
    struct gpusys_error error;
    last_error = "Call to connect timed out";
    assert_int_equal(gpusys_nccl_error(GPUSYS_NCCL_IN_PROGRESS, "ncclSend", NULL, &error), -EAGAIN);
    assert_string_equal(error.detail, "");
    assert_string_equal(error.hint, "");
}

static void long_words_are_cut(void **state)
{
    (void)state;
    static char text[3000];
    struct gpusys_error error;
    memset(text, 'x', sizeof text - 1);
    last_error = text;
    assert_int_equal(gpusys_nccl_error(GPUSYS_NCCL_SYSTEM_ERROR, "ncclSend", NULL, &error), -EIO);
    assert_true(strlen(error.detail) < sizeof error.detail);
    assert_non_null(strstr(error.detail, "last error\txxxx"));
}

static const struct cause {
    const char *text;
    int result;
    const char *cause, *hint;
} causes[] = {
    {"Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'", 1, "driver",
     "nvidia-smi"},
    {"Cuda failure 100 'no CUDA-capable device is detected'", 1, "driver", "--gpus all"},
    {"Cuda failure 'CUDA driver is a stub library'", 1, "toolkit's stub", "LD_LIBRARY_PATH"},
    {"Cuda failure 2 'out of memory'", 1, "memory is full", "nvidia-smi"},
    {"Failed to bind NVLink SHARP (NVLS) Multicast memory of size 8 : CUDA error 1 'invalid argument'.", 1,
     "fabric manager", "NCCL_NVLS_ENABLE=0"},
    {"Bootstrap : no socket interface found", 5, "no interface of this host", "lo"},
    {"Bootstrap : no socket interface found", 3, "no interface of this host", "NCCL_SOCKET_IFNAME"},
    {"Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000", 5, "one GPU", "local rank"},
    {"Mismatched NCCL version detected : rank 0 version 22809 rank 1 version 23004", 5, "different versions",
     "GPUSYS_LIBNCCL"},
    {"Error while creating shared memory segment /dev/shm/nccl-XyZ (size 9637888), error: No space left on "
     "device (28)",
     2, "/dev/shm, which has ", "--shm-size"},
    {"Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", 2, "registered", "ulimit -l"},
    {"Call to socket failed : Too many open files", 2, "open files", "ulimit -n"},
    {"socketProgress: Connection closed by remote peer node1<4711>", 6, "another rank's process",
     "other ranks"},
    {"socketStartConnect: Connect to 10.0.0.1<4711> failed : Connection refused", 2, "reached", "firewall"},
    {"socketStartConnect: connect to 10.0.0.1<4711> returned Connection timed out, exceeded", 6, "reached",
     "NCCL_SOCKET_IFNAME"},
};

static void causes_are_told_from_the_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(causes); i++) {
        struct gpusys_error error;
        last_error = causes[i].text;
        assert_true(gpusys_nccl_error(causes[i].result, "ncclCommInitRank", NULL, &error) < 0);
        if (!strstr(error.cause, causes[i].cause) || !strstr(error.hint, causes[i].hint))
            fail_msg("%s: cause \"%s\", hint \"%s\"", causes[i].text, error.cause, error.hint);
    }
}

static void old_words_prove_nothing(void **state)
{
    (void)state;
    struct gpusys_error error;
    for (size_t i = 0; i < COUNT_OF(causes); i++) {
        last_error = causes[i].text; /* which a wrong count cannot have led to */
        bool could_be = causes[i].result == GPUSYS_NCCL_INVALID_USAGE;
        assert_true(gpusys_nccl_error(could_be ? GPUSYS_NCCL_TIMEOUT : GPUSYS_NCCL_INVALID_ARGUMENT,
                                      "ncclSend", NULL, &error) < 0);
        assert_string_equal(error.cause, "");
        assert_string_equal(error.hint, "run again with NCCL_DEBUG=INFO to see more");
    }
    assert_int_equal(gpusys_nccl_error(77, "ncclSend", NULL, &error), -EIO);
    assert_string_equal(error.cause, "");
    assert_int_equal(gpusys_nccl_error(-77, "ncclSend", NULL, &error), -EIO);
    assert_string_equal(error.cause, "");
}

static void the_interface_that_was_asked_for_is_named(void **state)
{
    (void)state;
    struct gpusys_error error;
    last_error = "Bootstrap : no socket interface found";
    setenv("NCCL_SOCKET_IFNAME", "eth77", 1);
    assert_int_equal(gpusys_nccl_error(GPUSYS_NCCL_INVALID_USAGE, "ncclGetUniqueId", NULL, &error), -EINVAL);
    unsetenv("NCCL_SOCKET_IFNAME");
    assert_non_null(strstr(error.cause, "NCCL_SOCKET_IFNAME is \"eth77\""));
    assert_non_null(strstr(error.hint, "set NCCL_SOCKET_IFNAME to one of: "));
    assert_non_null(strstr(error.hint, "lo"));
}

static int begin(void **state)
{
    (void)state;
    unsetenv("NCCL_SOCKET_IFNAME");
    return 0;
}

#define OVER_SAID(name) cmocka_unit_test_setup(name, begin_said)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_library_the_words_are_ours),
        OVER_SAID(results_are_errnos),
        OVER_SAID(an_error_has_their_words),
        OVER_SAID(progress_is_no_trouble),
        OVER_SAID(long_words_are_cut),
        OVER_SAID(causes_are_told_from_the_words),
        OVER_SAID(old_words_prove_nothing),
        OVER_SAID(the_interface_that_was_asked_for_is_named),
    };
    return cmocka_run_group_tests_name("NCCL's errors", tests, begin, NULL);
}
