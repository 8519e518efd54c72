/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where rank 0 of a job is met, and the processes that this one comes from. */
#include "base/address.h"
#include "gpu/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int put_address(struct gpusys_job *job, const struct gs_address *address, const char *name,
                       struct gpusys_error *error)
{
    char text[GS_ADDRESS_TEXT_BYTES];
    gs_address_format(address, text);
    if (strlen(text) >= sizeof job->address)
        return gs_job_refuse(error, name, text, "the address is too long");
    memcpy(job->address, text, strlen(text) + 1);
    return 0;
}

/* Does the text end in a port? "[V6]:1", "HOST:1"; more colons without brackets are an IPv6 address. */
static bool has_port(const char *text)
{
    const char *close = strchr(text, ']'), *colon = strchr(text, ':');
    return text[0] == '[' ? close && close[1] == ':' : colon && !strchr(colon + 1, ':');
}

/* A host or address that the variable `name` gave. `port` 0: the text may have one of its own. */
static int take_address(struct gpusys_job *job, const char *name, const char *text, uint16_t port,
                        struct gpusys_error *error)
{
    struct gs_address address;
    struct gpusys_error why = {0};
    if (gs_address_parse(&address, text, &why))
        return gs_job_refuse(error, name, text, "that is no address (HOST, HOST:PORT, [V6]:PORT, unix:PATH)");
    if (port && (address.is_unix || has_port(text)))
        return gs_job_refuse(error, name, text, "a host alone is wanted here");
    if (!address.host[0])
        return gs_job_refuse(error, name, text, "it has no host");
    if (!address.is_unix && (port || !has_port(text)))
        address.port = port ? port : GPUSYS_COMM_PORT;
    return put_address(job, &address, name, error);
}

/*
 * MASTER_ADDR and MASTER_PORT. `taken`: something of torch's listens at the port itself, so ours is the next.
 */
static int master(struct gpusys_job *job, const char *host, bool taken, struct gpusys_error *error)
{
    const char *text = gs_job_variable("MASTER_PORT");
    uint32_t port = 0;
    if (!text)
        return take_address(job, "MASTER_ADDR", host, GPUSYS_COMM_PORT, error);
    for (const char *at = text; *at >= '0' && *at <= '9' && port <= UINT16_MAX; at++)
        port = port * 10 + (uint32_t)(*at - '0');
    if (text[strspn(text, "0123456789")] || port == 0 || port + taken > UINT16_MAX)
        return gs_job_refuse(error, "MASTER_PORT", text,
                             taken ? "a port from 1 to 65534 is wanted" : "a port from 1 to 65535 is wanted");
    return take_address(job, "MASTER_ADDR", host, (uint16_t)(port + taken), error);
}

static bool is_folder(const char *path)
{
    struct stat status;
    return path && stat(path, &status) == 0 && S_ISDIR(status.st_mode) && access(path, W_OK | X_OK) == 0;
}

/* A Unix socket that the ranks of this job, all on this host, have a common name for. */
static void local_socket(struct gpusys_job *job)
{
    const char *const folders[] = {gs_job_variable("XDG_RUNTIME_DIR"), "/tmp"};
    char name[64];
    int length = snprintf(name, sizeof name, "gpusys-%u-", (unsigned)getuid());
    for (size_t i = 0; i < sizeof job->id; i++)
        length += snprintf(name + length, sizeof name - (size_t)length, "%02x", job->id[i]);
    size_t limit = sizeof((struct sockaddr_un *)0)->sun_path;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (is_folder(folders[i]) && strlen(folders[i]) + 1 + (size_t)length < limit) {
            snprintf(job->address, sizeof job->address, "unix:%s/%s", folders[i], name);
            return;
        }
}

static int slurm_host(struct gpusys_job *job, struct gpusys_error *error)
{
    const char *const names[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"};
    char host[GS_HOST_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *list = gs_job_variable(names[i]);
        if (!list)
            continue;
        if (gs_job_slurm_first(list, host, sizeof host))
            return gs_job_refuse(error, names[i], list,
                                 "that is no list of nodes like \"node[01-03,7],gpu-a\"");
        return take_address(job, names[i], host, GPUSYS_COMM_PORT, error);
    }
    return 0;
}

int gs_job_address(struct gpusys_job *job, struct gpusys_error *error)
{
    static const uint8_t no_id[sizeof job->id];
    const char *given = gs_job_variable("GPUSYS_MASTER"), *host = gs_job_variable("MASTER_ADDR");
    bool elastic = gs_job_variable("TORCHELASTIC_RUN_ID");
    bool local = job->n_local == job->n_ranks && memcmp(job->id, no_id, sizeof no_id) != 0;
    if (given)
        return take_address(job, "GPUSYS_MASTER", given, 0, error);
    if (local && (elastic || !host))
        local_socket(job);
    if (job->address[0])
        return 0;
    if (host)
        return master(job, host, elastic, error);
    return strcmp(job->launcher, "slurm") == 0 ? slurm_host(job, error) : 0;
}

/* Of /proc/PID/stat: the name (it may hold anything, blanks and brackets too), the parent, the start. */
static bool read_process(pid_t pid, char name[32], pid_t *parent, uint64_t *started)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    if (!open_at || !close_at || close_at <= open_at)
        return false;
    snprintf(name, 32, "%.*s", (int)(close_at - open_at - 1), open_at + 1);
    return sscanf(close_at + 1,
                  " %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
                  parent, started) == 2;
}

bool gs_job_ancestor(const char *wanted, pid_t *ret_pid, uint64_t *ret_started)
{
    char name[32];
    pid_t parent;
    uint64_t started;
    for (pid_t pid = getppid(); pid > 0; pid = parent) {
        if (!read_process(pid, name, &parent, &started))
            return false;
        if (strcmp(name, wanted) == 0) {
            *ret_pid = pid;
            *ret_started = started;
            return true;
        }
    }
    return false;
}
