/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Jobs, from the environments that launchers make. */
#include "base/address.h"
#include "gpu/job.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const uint8_t no_id[16];

/* The environment is these words "NAME=VALUE", blanks between, and nothing else. */
static void environment(const char *words)
{
    char text[1024], *rest = text, *word;
    snprintf(text, sizeof text, "%s", words);
    clearenv();
    while ((word = strsep(&rest, " "))) {
        char *equals = strchr(word, '=');
        assert_non_null(equals);
        *equals = 0;
        setenv(word, equals + 1, 1);
    }
}

static struct gpusys_job job_of(const char *words)
{
    struct gpusys_job job = {.size = sizeof job};
    struct gpusys_error error = {0};
    environment(words);
    int code = gpusys_job_from_env(&job, &error);
    if (code)
        fail_msg("%s: %d, %s", words, code, error.message);
    return job;
}

static void assert_numbers(const struct gpusys_job *job, const char *launcher, const uint32_t numbers[4])
{
    assert_string_equal(job->launcher, launcher);
    assert_int_equal(job->rank, numbers[0]);
    assert_int_equal(job->n_ranks, numbers[1]);
    assert_int_equal(job->local_rank, numbers[2]);
    assert_int_equal(job->n_local, numbers[3]);
}

static void every_launcher_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *words, *launcher;
        uint32_t numbers[4];
    } rows[] = {
        {"GPUSYS_RANK=3 GPUSYS_RANKS=8 GPUSYS_LOCAL_RANK=1 GPUSYS_LOCAL_RANKS=2", "gpusys", {3, 8, 1, 2}},
        {"GPUSYS_RANK=3 GPUSYS_RANKS=8", "gpusys", {3, 8, 0, 0}},
        {"RANK=5 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", "torchrun", {5, 16, 1, 4}},
        {"RANK=5 WORLD_SIZE=16 LOCAL_RANK=5", "torchrun", {5, 16, 5, 0}},
        {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=2",
         "openmpi",
         {2, 4, 0, 2}},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "mpich", {1, 2, 1, 2}},
        {"SLURM_PROCID=7 SLURM_NTASKS=8 SLURM_LOCALID=0 SLURM_NODEID=3 SLURM_STEP_TASKS_PER_NODE=2(x3),1,1",
         "slurm",
         {7, 8, 0, 1}},
        {"SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=2(x4)",
         "slurm",
         {3, 8, 1, 2}},
        {"SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=1", "slurm", {3, 8, 1, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gpusys_job job = job_of(rows[i].words);
        assert_numbers(&job, rows[i].launcher, rows[i].numbers);
    }
}

static void the_first_complete_set_wins(void **state)
{
    (void)state;
    struct gpusys_job job = job_of("GPUSYS_RANK=1 GPUSYS_RANKS=2 RANK=3 WORLD_SIZE=4");
    assert_numbers(&job, "gpusys", (const uint32_t[]){1, 2, 0, 0});
    job = job_of("GPUSYS_RANK=1 RANK=0 SLURM_PROCID=3 SLURM_NTASKS=4");
    assert_numbers(&job, "slurm", (const uint32_t[]){3, 4, 0, 0});
    job = job_of("RANK= WORLD_SIZE=4 SLURM_PROCID=3 SLURM_NTASKS=4"); /* empty is as good as not there */
    assert_string_equal(job.launcher, "slurm");
}

/* srun may speak PMI itself; mpich's mpirun inside an allocation leaves the numbers of its own proxies. */
static void slurm_and_mpich_are_told_apart(void **state)
{
    (void)state;
    struct gpusys_job job =
        job_of("PMI_RANK=1 PMI_SIZE=2 PMI_JOBID=9.0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 "
               "SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2 SLURM_JOB_ID=9");
    assert_numbers(&job, "slurm", (const uint32_t[]){1, 2, 1, 2});
    job = job_of("PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 SLURM_PROCID=1 SLURM_NTASKS=2");
    assert_numbers(&job, "mpich", (const uint32_t[]){3, 4, 1, 2});
}

static void nonsense_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *words, *message;
    } rows[] = {
        {"RANK=x WORLD_SIZE=2", "RANK is \"x\": that is not a decimal number"},
        {"RANK=-1 WORLD_SIZE=2", "RANK is \"-1\": that is not a decimal number"},
        {"RANK=2 WORLD_SIZE=2", "RANK is \"2\": it must be below 2"},
        {"RANK=99999999999999999999 WORLD_SIZE=2", "RANK is \"99999999999999999999\": it must be below 2"},
        {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\": a job has at least one rank"},
        {"RANK=0 WORLD_SIZE=4294967296", "WORLD_SIZE is \"4294967296\": it must be below 2147483647"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is \"2\": it must be below 2"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3",
         "LOCAL_WORLD_SIZE is \"3\": it must be below 3"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=0",
         "LOCAL_WORLD_SIZE is \"0\": a job has at least one rank"},
        {"RANK=0 WORLD_SIZE=2 GPUSYS_JOB_ID=00ff",
         "GPUSYS_JOB_ID is \"00ff\": that is not 32 hexadecimal digits"},
        {"RANK=0 WORLD_SIZE=2 GPUSYS_JOB_ID=0123456789abcdef0123456789abcdeg",
         "GPUSYS_JOB_ID is \"0123456789abcdef0123456789abcdeg\": that is not 32 hexadecimal digits"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65536",
         "MASTER_PORT is \"65536\": a port from 1 to 65535 is wanted"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0",
         "MASTER_PORT is \"0\": a port from 1 to 65535 is wanted"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=12x",
         "MASTER_PORT is \"12x\": a port from 1 to 65535 is wanted"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a:1 MASTER_PORT=2",
         "MASTER_ADDR is \"a:1\": a host alone is wanted here"},
        {"RANK=0 WORLD_SIZE=2 GPUSYS_MASTER=a:b:c",
         "GPUSYS_MASTER is \"a:b:c\": that is no address (HOST, HOST:PORT, [V6]:PORT, unix:PATH)"},
        {"RANK=0 WORLD_SIZE=2 GPUSYS_MASTER=:80", "GPUSYS_MASTER is \":80\": it has no host"},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODEID=x SLURM_STEP_TASKS_PER_NODE=2(x2)",
         "SLURM_NODEID is \"x\": that is not a decimal number"},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE=2(x2)",
         "SLURM_STEP_TASKS_PER_NODE is \"2(x2)\": that is no list like \"2(x3),1\" with this node in it"},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2(x2",
         "SLURM_STEP_TASKS_PER_NODE is \"2(x2\": that is no list like \"2(x3),1\" with this node in it"},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=5",
         "SLURM_STEP_TASKS_PER_NODE is \"5\": this node has more tasks in it than the step"},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NODELIST=node[01-03",
         "SLURM_STEP_NODELIST is \"node[01-03\": that is no list of nodes like \"node[01-03,7],gpu-a\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gpusys_job job = {.size = sizeof job, .rank = 77};
        struct gpusys_error error = {0};
        environment(rows[i].words);
        assert_int_equal(gpusys_job_from_env(&job, &error), -EINVAL);
        assert_string_equal(error.message, rows[i].message);
        assert_true(error.hint[0]);
        assert_int_equal(job.rank, 77);
        assert_int_equal(gpusys_job_from_env(&job, NULL), -EINVAL);
    }
}

static void no_job_tells_of_halves(void **state)
{
    (void)state;
    struct gpusys_job job = {.size = sizeof job};
    struct gpusys_error error = {0};
    clearenv();
    assert_int_equal(gpusys_job_from_env(&job, &error), -ENOENT);
    assert_string_equal(error.message, "the environment says nothing of a job");
    assert_string_equal(error.detail, "");
    environment("RANK=0 PMI_SIZE=2");
    assert_int_equal(gpusys_job_from_env(&job, &error), -ENOENT);
    assert_string_equal(error.detail,
                        "torchrun\tRANK is set, WORLD_SIZE is not\nmpich\tPMI_SIZE is set, PMI_RANK is not");
    assert_non_null(strstr(error.cause, "only one of them is set"));
    assert_non_null(strstr(error.hint, "GPUSYS_RANK, GPUSYS_RANKS"));
}

static void sizes_of_callers(void **state)
{
    (void)state;
    struct gpusys_error error = {0};
    struct gpusys_job job = {0};
    environment("RANK=1 WORLD_SIZE=2 GPUSYS_MASTER=a");
    assert_int_equal(gpusys_job_from_env(&job, &error), -EINVAL);
    assert_int_equal(gpusys_job_from_env(NULL, NULL), -EINVAL);
    job.size = offsetof(struct gpusys_job, launcher);
    memset(job.launcher, 'x', sizeof job.launcher);
    assert_int_equal(gpusys_job_from_env(&job, &error), 0);
    assert_int_equal(job.n_ranks, 2);
    assert_int_equal(job.launcher[0], 'x');
}

static void addresses(void **state)
{
    (void)state;
    static const struct {
        const char *words, *address;
    } rows[] = {
        {"GPUSYS_MASTER=node1:99", "node1:99"},
        {"GPUSYS_MASTER=node1", "node1:7475"},
        {"GPUSYS_MASTER=[::1]", "[::1]:7475"},
        {"GPUSYS_MASTER=::1", "[::1]:7475"},
        {"GPUSYS_MASTER=[::1]:5", "[::1]:5"},
        {"GPUSYS_MASTER=127.0.0.1:0", "127.0.0.1:0"},
        {"GPUSYS_MASTER=unix:/tmp/a:b", "unix:/tmp/a:b"},
        {"GPUSYS_MASTER=node1 MASTER_ADDR=node2 MASTER_PORT=5", "node1:7475"},
        {"MASTER_ADDR=node2 MASTER_PORT=5", "node2:5"},
        {"MASTER_ADDR=node2", "node2:7475"},
        {"MASTER_ADDR=fe80::1%eth0 MASTER_PORT=5", "[fe80::1%eth0]:5"},
        {"MASTER_PORT=5", ""},
        {"SLURM_STEP_NODELIST=a[1-2]", ""}, /* not Slurm's job */
        /* torchrun's agent listens at the port itself */
        {"MASTER_ADDR=node2 MASTER_PORT=5 TORCHELASTIC_RUN_ID=none", "node2:6"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char words[512];
        snprintf(words, sizeof words, "RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 %s",
                 rows[i].words);
        assert_string_equal(job_of(words).address, rows[i].address);
    }
}

static void slurm_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list, *first;
    } good[] = {
        {"node[01-03,7],gpu-a", "node01"},
        {"gpu-a,node[1-2]", "gpu-a"},
        {"node7", "node7"},
        {"n[7,9]", "n7"},
        {"rack[1-2]n[03-04]-ib", "rack1n03-ib"},
        {"[1-3]", "1"},
        {"n[5]", "n5"},
    };
    static const char *const bad[] = {"", ",a", "n[", "n[]", "n[a]", "n[1", "n]1[", "n[1x]", "n[-1]"};
    char host[64];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(gs_job_slurm_first(good[i].list, host, sizeof host), 0);
        assert_string_equal(host, good[i].first);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(gs_job_slurm_first(bad[i], host, sizeof host), -EINVAL);
    assert_int_equal(gs_job_slurm_first("node7", host, 6), 0);
    assert_int_equal(gs_job_slurm_first("node7", host, 5), -ENAMETOOLONG);
    struct gpusys_job job = job_of("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_NODELIST=b[08-9],c");
    assert_string_equal(job.address, "b08:7475");
    job = job_of("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_NODELIST=b[08-9],c SLURM_STEP_NODELIST=c");
    assert_string_equal(job.address, "c:7475");
}

static void ranks_of_one_host_meet_at_a_socket(void **state)
{
    (void)state;
    const char *local =
        "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=a MASTER_ADDR=h "
        "MASTER_PORT=5";
    char words[512], expected[128];
    struct gs_address address;
    snprintf(words, sizeof words, "%s GPUSYS_JOB_ID=000102030405060708090A0b0c0d0e0f", local);
    snprintf(expected, sizeof expected, "unix:/tmp/gpusys-%u-000102030405060708090a0b0c0d0e0f",
             (unsigned)getuid());
    struct gpusys_job job = job_of(words);
    assert_string_equal(job.address, expected);
    assert_int_equal(job.id[10], 10);
    assert_int_equal(gs_address_parse(&address, job.address, NULL), 0);
    snprintf(words, sizeof words, "%s XDG_RUNTIME_DIR=/", local);
    job = job_of(words);
    assert_int_equal(strncmp(job.address, "unix://gpusys-", 14), 0);
    snprintf(words, sizeof words, "%s XDG_RUNTIME_DIR=/nowhere", local);
    job = job_of(words);
    assert_int_equal(strncmp(job.address, "unix:/tmp/gpusys-", 17), 0);
    /* Without a name for the job, or with an address from elsewhere than torchrun: no socket. */
    job = job_of("PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2");
    assert_string_equal(job.address, "");
    job = job_of("PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 PMI_JOBID=x MASTER_ADDR=h");
    assert_string_equal(job.address, "h:7475");
}

/* A folder so long that the name does not fit into a socket's is passed over. */
static void long_folders_are_passed_over(void **state)
{
    (void)state;
    char folder[] = "/tmp/gpusys-a-folder-with-a-name-of-a-good-many-letters-for-a-socket-XXXXXX", words[512];
    assert_non_null(mkdtemp(folder));
    snprintf(words, sizeof words, "PMI_RANK=0 PMI_SIZE=1 MPI_LOCALNRANKS=1 PMI_JOBID=x XDG_RUNTIME_DIR=%s",
             folder);
    struct gpusys_job job = job_of(words);
    assert_int_equal(strncmp(job.address, "unix:/tmp/gpusys-", 17), 0);
    assert_null(strstr(job.address, folder));
    rmdir(folder);
}

static void assert_ids(const char *one, const char *other, bool same)
{
    struct gpusys_job first = job_of(one), second = job_of(other);
    assert_memory_not_equal(first.id, no_id, sizeof no_id);
    assert_int_equal(memcmp(first.id, second.id, sizeof first.id) == 0, same);
}

static void ids_are_the_jobs(void **state)
{
    (void)state;
    assert_ids("RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=a", "RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=a",
               true);
    assert_ids("RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=a", "RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=b",
               false);
    assert_ids("RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none MASTER_ADDR=h MASTER_PORT=1",
               "RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none MASTER_ADDR=h MASTER_PORT=2", false);
    assert_ids("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=7",
               "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=8", false);
    assert_ids("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_ess_base_jobid=7",
               "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_ess_base_jobid=7", true);
    assert_ids("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0",
               "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=1", false);
    assert_ids("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=7", "PMI_RANK=0 PMI_SIZE=2 PMI_JOBID=7", false);
    struct gpusys_job job = job_of("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1");
    assert_memory_equal(job.id, no_id, sizeof no_id);
}

/* A rank, in a child of a child: its id and address go into the pipe. */
static void rank_below_proxy(int out, const char *words)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct gpusys_job job = {.size = sizeof job};
        environment(words);
        int code = gpusys_job_from_env(&job, NULL);
        _exit(code || write(out, &job, sizeof job) != sizeof job);
    }
    waitpid(pid, NULL, 0);
}

/* mpich does not name its jobs: ranks of one host are those below one proxy, be there a shell between or not. */
static void mpich_ranks_share_a_proxy(void **state)
{
    (void)state;
    struct gpusys_job jobs[3];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    for (int proxy = 0; proxy < 2; proxy++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_NAME, "hydra_pmi_proxy");
            rank_below_proxy(ends[1], "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2");
            if (proxy)
                _exit(0);
            pid = fork();
            if (pid == 0) {
                prctl(PR_SET_NAME, "a shell) 1 (");
                rank_below_proxy(ends[1], "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2");
                _exit(0);
            }
            waitpid(pid, NULL, 0);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
    close(ends[1]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(read(ends[0], &jobs[i], sizeof jobs[i]), sizeof jobs[i]);
    close(ends[0]);
    assert_memory_not_equal(jobs[0].id, no_id, sizeof no_id);
    assert_memory_equal(jobs[0].id, jobs[1].id, sizeof no_id);
    assert_string_equal(jobs[0].address, jobs[1].address);
    assert_int_equal(strncmp(jobs[0].address, "unix:/tmp/gpusys-", 17), 0);
    assert_memory_not_equal(jobs[0].id, jobs[2].id, sizeof no_id);
}

/* The number behind the last bracket of /proc/PID/stat is the 22nd, as proc(5) has it. */
static void ancestors_are_found(void **state)
{
    (void)state;
    int ends[2];
    uint64_t started[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, "an ancestor");
        pid_t self = getpid(), child = fork();
        if (child == 0) {
            pid_t found = 0;
            bool good = gs_job_ancestor("an ancestor", &found, &started[0]) && found == self &&
                        !gs_job_ancestor("a name of nobody", &found, &started[0]);
            _exit(!good || write(ends[1], &started[0], sizeof started[0]) != sizeof started[0]);
        }
        int status;
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &started[0], sizeof started[0]), sizeof started[0]);
    close(ends[0]);
    close(ends[1]);
    FILE *file = fopen("/proc/uptime", "r");
    double uptime;
    assert_int_equal(fscanf(file, "%lf", &uptime), 1);
    fclose(file);
    double ago = uptime - (double)started[0] / (double)sysconf(_SC_CLK_TCK);
    assert_true(ago > -1 && ago < 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_is_read),
        cmocka_unit_test(the_first_complete_set_wins),
        cmocka_unit_test(slurm_and_mpich_are_told_apart),
        cmocka_unit_test(nonsense_is_named),
        cmocka_unit_test(no_job_tells_of_halves),
        cmocka_unit_test(sizes_of_callers),
        cmocka_unit_test(addresses),
        cmocka_unit_test(slurm_lists),
        cmocka_unit_test(ranks_of_one_host_meet_at_a_socket),
        cmocka_unit_test(long_folders_are_passed_over),
        cmocka_unit_test(ids_are_the_jobs),
        cmocka_unit_test(mpich_ranks_share_a_proxy),
        cmocka_unit_test(ancestors_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
