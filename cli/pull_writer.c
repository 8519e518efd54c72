/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pull_writer.h"
#include "pull.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* Hashed and written in steps that stay in the processor's cache between the two. */
static const uint64_t step_bytes = 256 << 10;

struct writer {
    pthread_t thread;
    struct gpusys_hasher *hasher; /* NULL: not verifying. Chunks arrive one after the other */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot *slot; /* to be written */
    bool stopping;
};

static int write_step(int fd, const unsigned char *bytes, uint64_t length, uint64_t offset)
{
    while (length > 0) {
        ssize_t wrote = pwrite(fd, bytes, length, (off_t)offset);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return wrote < 0 ? -errno : -ENOSPC;
        bytes += wrote;
        offset += (uint64_t)wrote;
        length -= (uint64_t)wrote;
    }
    return 0;
}

static int write_piece(struct gpusys_hasher *hasher, struct piece *piece)
{
    int code = 0;
    if (hasher && piece->offset % GPUSYS_CHUNK_BYTES == 0)
        gpusys_hasher_reset(hasher);
    for (uint64_t at = 0; at < piece->length && !code; at += step_bytes) {
        uint64_t step = piece->length - at < step_bytes ? piece->length - at : step_bytes;
        if (hasher)
            gpusys_hasher_add(hasher, piece->bytes + at, step);
        code = write_step(piece->arrival->fd, piece->bytes + at, step, piece->offset + at);
    }
    if (hasher)
        gpusys_hasher_get(hasher, piece->hash);
    return code;
}

static struct slot *next_slot(struct writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (!writer->slot && !writer->stopping)
        pthread_cond_wait(&writer->changed, &writer->lock);
    struct slot *slot = writer->slot;
    pthread_mutex_unlock(&writer->lock);
    return slot;
}

static void *writer_main(void *argument)
{
    struct writer *writer = argument;
    struct slot *slot;
    while ((slot = next_slot(writer))) {
        for (unsigned i = 0; i < slot->n_pieces; i++)
            slot->pieces[i].code = write_piece(writer->hasher, &slot->pieces[i]);
        pthread_mutex_lock(&writer->lock);
        writer->slot = NULL;
        pthread_cond_signal(&writer->changed);
        pthread_mutex_unlock(&writer->lock);
    }
    return NULL;
}

/* Signals are for the thread that looks at them. */
static int create_thread(struct writer *writer)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&writer->thread, NULL, writer_main, writer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

int writer_start(struct writer **ret_writer, bool hash)
{
    struct writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return -ENOMEM;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    int code = hash ? gpusys_hasher_new(&writer->hasher) : 0;
    if (!code)
        code = create_thread(writer);
    if (code) {
        gpusys_hasher_free(writer->hasher);
        free(writer);
        return code;
    }
    *ret_writer = writer;
    return 0;
}

void writer_give(struct writer *writer, struct slot *slot)
{
    pthread_mutex_lock(&writer->lock);
    writer->slot = slot;
    pthread_cond_signal(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

void writer_wait(struct writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->slot)
        pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
}

void writer_stop(struct writer *writer)
{
    if (!writer)
        return;
    writer_wait(writer);
    pthread_mutex_lock(&writer->lock);
    writer->stopping = true;
    pthread_cond_signal(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->lock);
    gpusys_hasher_free(writer->hasher);
    free(writer);
}
