/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: reductions. */
#include "fake/nccl.h"

#include <string.h>

enum { PIECE = 512 }; /* elements at a time, through buffers on the stack */

/* Two of a type into one, for whole numbers (which wrap) and for floats. */
#define REDUCE_INTEGER(name, T, W)                                                                           \
    static void name(T *to, const T *from, size_t count, int op)                                             \
    {                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                   \
            switch (op) {                                                                                    \
            case PROD: to[i] = (T)((uint64_t)to[i] * (uint64_t)from[i]); break;                              \
            case MAX: to[i] = from[i] > to[i] ? from[i] : to[i]; break;                                      \
            case MIN: to[i] = from[i] < to[i] ? from[i] : to[i]; break;                                      \
            default: to[i] = (T)((uint64_t)to[i] + (uint64_t)from[i]); break;                                \
            }                                                                                                \
    }                                                                                                        \
    static void name##_divide(T *to, size_t count, int n)                                                    \
    {                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                   \
            to[i] = (T)(to[i] / (W)n);                                                                       \
    }                                                                                                        \
    static void name##_multiply(T *to, size_t count, const void *scalar)                                     \
    {                                                                                                        \
        T by;                                                                                                \
        memcpy(&by, scalar, sizeof by);                                                                      \
        for (size_t i = 0; i < count; i++)                                                                   \
            to[i] = (T)((uint64_t)to[i] * (uint64_t)by);                                                     \
    }

#define REDUCE_SIGNED(name, T)   REDUCE_INTEGER(name, T, int64_t)
#define REDUCE_UNSIGNED(name, T) REDUCE_INTEGER(name, T, uint64_t)

#define REDUCE_FLOAT(name, T)                                                                                \
    static void name(T *to, const T *from, size_t count, int op)                                             \
    {                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                   \
            switch (op) {                                                                                    \
            case PROD: to[i] *= from[i]; break;                                                              \
            case MAX: to[i] = from[i] > to[i] ? from[i] : to[i]; break;                                      \
            case MIN: to[i] = from[i] < to[i] ? from[i] : to[i]; break;                                      \
            default: to[i] += from[i]; break;                                                                \
            }                                                                                                \
    }                                                                                                        \
    static void name##_divide(T *to, size_t count, int n)                                                    \
    {                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                   \
            to[i] /= (T)n;                                                                                   \
    }                                                                                                        \
    static void name##_multiply(T *to, size_t count, const void *scalar)                                     \
    {                                                                                                        \
        T by;                                                                                                \
        memcpy(&by, scalar, sizeof by);                                                                      \
        for (size_t i = 0; i < count; i++)                                                                   \
            to[i] *= by;                                                                                     \
    }

/* The types that compute as themselves. */
#define NATIVE(X)                                                                                            \
    X(INT8, int8, int8_t, REDUCE_SIGNED)                                                                     \
    X(UINT8, uint8, uint8_t, REDUCE_UNSIGNED)                                                                \
    X(INT32, int32, int32_t, REDUCE_SIGNED)                                                                  \
    X(UINT32, uint32, uint32_t, REDUCE_UNSIGNED)                                                             \
    X(INT64, int64, int64_t, REDUCE_SIGNED)                                                                  \
    X(UINT64, uint64, uint64_t, REDUCE_UNSIGNED)                                                             \
    X(FLOAT32, float32, float, REDUCE_FLOAT)                                                                 \
    X(FLOAT64, float64, double, REDUCE_FLOAT)

#define DEFINE(number, name, T, how) how(name, T)
NATIVE(DEFINE)

static void combine(void *to, const void *from, size_t count, int type, int op)
{
#define CASE(number, name, T, how)                                                                           \
    case number: name(to, from, count, op); break;
    switch (type) {
        NATIVE(CASE)
    default: break;
    }
#undef CASE
}

static void divide(void *to, size_t count, int type, int n)
{
#define CASE(number, name, T, how)                                                                           \
    case number: name##_divide(to, count, n); break;
    switch (type) {
        NATIVE(CASE)
    default: break;
    }
#undef CASE
}

static void multiply(void *to, size_t count, int type, const void *scalar)
{
#define CASE(number, name, T, how)                                                                           \
    case number: name##_multiply(to, count, scalar); break;
    switch (type) {
        NATIVE(CASE)
    default: break;
    }
#undef CASE
}

/* A piece of some type into the type it is computed in. */
static void load(void *to, const unsigned char *from, size_t count, int type)
{
    if (fake_is_small(type))
        fake_widen(to, from, count, type);
    else
        memcpy(to, from, count * fake_type_bytes(type));
}

static void store(void *to, const void *from, size_t count, int type)
{
    if (fake_is_small(type))
        fake_narrow(to, from, count, type);
    else
        memcpy(to, from, count * fake_type_bytes(type));
}

static int computed_as(int type)
{
    return fake_is_small(type) ? FLOAT32 : type;
}

void fake_contribute(void *to, const void *from, size_t count, int type, const struct reduction *reduction)
{
    size_t bytes = fake_type_bytes(type);
    if (reduction->op != N_OPS) {
        memcpy(to, from, count * bytes);
        return;
    }
    uint64_t piece[PIECE], scalar;
    const void *given = reduction->device_scalar ? reduction->device_scalar : reduction->scalar;
    load(&scalar, given, 1, type);
    for (size_t done = 0, now; done < count; done += now) {
        now = count - done < PIECE ? count - done : PIECE;
        load(piece, (const unsigned char *)from + done * bytes, now, type);
        multiply(piece, now, computed_as(type), &scalar);
        store((unsigned char *)to + done * bytes, piece, now, type);
    }
}

void fake_reduce(void *to, const unsigned char *from, size_t stride, int n, size_t count, int type, int op)
{
    uint64_t sum[PIECE], piece[PIECE];
    size_t bytes = fake_type_bytes(type);
    for (size_t done = 0, now; done < count; done += now) {
        now = count - done < PIECE ? count - done : PIECE;
        load(sum, from + done * bytes, now, type);
        for (int rank = 1; rank < n; rank++) {
            load(piece, from + (size_t)rank * stride + done * bytes, now, type);
            combine(sum, piece, now, computed_as(type), op);
        }
        if (op == AVG)
            divide(sum, now, computed_as(type), n);
        store((unsigned char *)to + done * bytes, sum, now, type);
    }
}
