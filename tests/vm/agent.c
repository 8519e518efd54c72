/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The first process of a virtual test host: it runs commands for the harness outside.
 *
 * Usage: vm-agent PORT, where PORT is a virtio-serial port. Frames go both ways: the payload's length and an id, each
 * as four bytes, least significant first, then a letter and the payload. The harness chooses ids. It sends
 *   R  run: user id (4 bytes), then a command for sh          W  write: mode (4 bytes), flags (4), path, NUL, content
 *   S  signal (4 bytes) the process group of that id          P  answer when all that came before is done
 * and gets A (an answer: a process id, 0, or a negative errno; 4 bytes), O and E (output of a command), X (its wait
 * status), K (a record of the kernel's log) and once, at the start, H. When the harness goes away, the machine is
 * switched off.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEAD = 9, MOST = 1 << 20, PIECE = 32 * 1024, FULL_PIPE = 4, JOBS = 64, APPEND = 1 };

/* A command that runs, or whose output somebody still holds open. */
struct job {
    uint32_t id;
    pid_t pid; /* 0: it has ended */
    int output[2];
};

static struct job jobs[JOBS];
static size_t job_count;
static int port, kernel_log, children;

static uint32_t get32(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void put32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static void switch_off(void)
{
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

static void write_all(const void *data, size_t length)
{
    for (const char *at = data; length > 0;) {
        ssize_t done = write(port, at, length);
        if (done <= 0)
            switch_off();
        at += done;
        length -= (size_t)done;
    }
}

static void read_all(void *data, size_t length)
{
    for (char *at = data; length > 0;) {
        ssize_t done = read(port, at, length);
        if (done <= 0)
            switch_off();
        at += done;
        length -= (size_t)done;
    }
}

/* One write each, so that a short frame is one buffer of the port. */
static void send_frame(char kind, uint32_t id, const void *payload, size_t length)
{
    unsigned char frame[HEAD + PIECE];

    put32(frame, (uint32_t)length);
    put32(frame + 4, id);
    frame[8] = (unsigned char)kind;
    if (length > 0)
        memcpy(frame + HEAD, payload, length);
    write_all(frame, HEAD + length);
}

static void send_number(char kind, uint32_t id, int32_t value)
{
    unsigned char payload[4];

    put32(payload, (uint32_t)value);
    send_frame(kind, id, payload, sizeof payload);
}

/* Pass on the kernel's log as far as it goes. A read gives one record; EPIPE means that some were overwritten. */
static void forward_kernel_log(void)
{
    char record[8192];

    for (;;) {
        ssize_t length = read(kernel_log, record, sizeof record);
        if (length > 0)
            send_frame('K', 0, record, (size_t)length);
        else if (errno != EPIPE)
            return;
    }
}

/* Pass on what a command has written, so many pieces at most, and close the pipe at its end. */
static void forward_output(struct job *job, int stream, int most)
{
    char piece[PIECE];

    for (int i = 0; i < most && job->output[stream] >= 0; i++) {
        ssize_t length = read(job->output[stream], piece, sizeof piece);
        if (length > 0) {
            send_frame(stream ? 'E' : 'O', job->id, piece, (size_t)length);
            continue;
        }
        if (length < 0 && errno == EAGAIN)
            return;
        close(job->output[stream]);
        job->output[stream] = -1;
    }
}

static void drop_finished_jobs(void)
{
    for (size_t i = job_count; i-- > 0;)
        if (jobs[i].pid == 0 && jobs[i].output[0] < 0 && jobs[i].output[1] < 0)
            jobs[i] = jobs[--job_count];
}

/* What a command wrote comes before its end; what its own children write later, after. */
static void reap(void)
{
    struct signalfd_siginfo information;
    int status;

    while (read(children, &information, sizeof information) > 0)
        continue;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (size_t i = 0; i < job_count; i++) {
            if (jobs[i].pid != pid)
                continue;
            forward_output(&jobs[i], 0, FULL_PIPE);
            forward_output(&jobs[i], 1, FULL_PIPE);
            jobs[i].pid = 0;
            send_number('X', jobs[i].id, status);
        }
    }
}

static _Noreturn void become(uid_t user, const char *command, const int output[2])
{
    sigset_t none;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    setpriority(PRIO_PROCESS, 0, 0);
    dup2(nothing, 0);
    dup2(output[0], 1);
    dup2(output[1], 2);
    if (user != 0) {
        setenv("HOME", "/home/user", 1);
        setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
        if (setgroups(0, NULL) || setgid((gid_t)user) || setuid(user))
            _exit(126);
    }
    if (chdir(user ? "/home/user" : "/root"))
        _exit(126);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static int32_t start(uint32_t id, uid_t user, const char *command)
{
    int out[2], err[2];

    if (job_count == JOBS)
        return -EAGAIN;
    if (pipe2(out, O_CLOEXEC))
        return -errno;
    if (pipe2(err, O_CLOEXEC)) {
        close(out[0]);
        close(out[1]);
        return -ENFILE;
    }
    pid_t pid = fork();
    if (pid == 0)
        become(user, command, (int[2]){out[1], err[1]});
    if (pid > 0)
        setpgid(pid, pid); /* here as well: a signal may be asked for before the child has got that far */
    close(out[1]);
    close(err[1]);
    if (pid < 0) {
        close(out[0]);
        close(err[0]);
        return -EAGAIN;
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    jobs[job_count++] = (struct job){.id = id, .pid = pid, .output = {out[0], err[0]}};
    return pid;
}

static int32_t signal_job(uint32_t id, int number)
{
    for (size_t i = 0; i < job_count; i++)
        if (jobs[i].id == id && jobs[i].pid > 0)
            return kill(-jobs[i].pid, number) ? -errno : 0;
    return -ESRCH;
}

static int32_t write_file(mode_t mode, uint32_t flags, const char *path, const char *content, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (flags & APPEND ? O_APPEND : O_TRUNC), mode);
    if (fd < 0)
        return -errno;
    int32_t result = fchmod(fd, mode) ? -errno : 0;
    while (result == 0 && length > 0) {
        ssize_t done = write(fd, content, length);
        if (done < 0) {
            result = -errno;
        } else {
            content += done;
            length -= (size_t)done;
        }
    }
    close(fd);
    return result;
}

/* The payload is followed by a NUL that is not counted. */
static int32_t obey(char kind, uint32_t id, const unsigned char *payload, size_t length)
{
    const char *text = (const char *)payload;

    switch (kind) {
    case 'P':
        reap();
        forward_kernel_log();
        return 0;
    case 'R': return length < 4 ? -EINVAL : start(id, get32(payload), text + 4);
    case 'S': return length < 4 ? -EINVAL : signal_job(id, (int)get32(payload));
    case 'W': {
        size_t name = length < 9 ? 0 : 8 + strlen(text + 8) + 1;
        if (name == 0 || name > length)
            return -EINVAL;
        return write_file(get32(payload), get32(payload + 4), text + 8, text + name, length - name);
    }
    default: return -ENOSYS;
    }
}

static void take_frame(void)
{
    static unsigned char payload[MOST + 1];
    unsigned char head[HEAD];

    read_all(head, sizeof head);
    uint32_t length = get32(head), id = get32(head + 4);
    if (length > MOST)
        switch_off();
    read_all(payload, length);
    payload[length] = 0;
    send_number('A', id, obey((char)head[8], id, payload, length));
}

static void serve(void)
{
    struct pollfd polled[3 + 2 * JOBS];
    size_t seen = job_count;

    polled[0] = (struct pollfd){.fd = port, .events = POLLIN};
    polled[1] = (struct pollfd){.fd = kernel_log, .events = POLLIN};
    polled[2] = (struct pollfd){.fd = children, .events = POLLIN};
    for (size_t i = 0; i < 2 * seen; i++)
        polled[3 + i] = (struct pollfd){.fd = jobs[i / 2].output[i % 2], .events = POLLIN};
    if (poll(polled, 3 + 2 * seen, -1) < 0)
        return;
    for (size_t i = 0; i < 2 * seen; i++)
        if (polled[3 + i].revents)
            forward_output(&jobs[i / 2], i % 2, 1);
    if (polled[1].revents)
        forward_kernel_log();
    if (polled[2].revents)
        reap();
    if (polled[0].revents)
        take_frame();
    drop_finished_jobs();
}

int main(int argc, char **argv)
{
    sigset_t child;

    port = argc == 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
    kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    children = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    if (port < 0 || kernel_log < 0 || children < 0) {
        perror("vm-agent");
        switch_off();
    }
    setpriority(PRIO_PROCESS, 0, -20);
    send_frame('H', 0, NULL, 0);
    for (;;)
        serve();
}
