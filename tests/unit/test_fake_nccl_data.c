/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl moves and computes: every type and reduction, every operation, in place and not. */
#include "nccl_play.h"

#include <math.h>

enum { FEW = 129, MANY = 50003, GUARD = 64, PREMULTIPLIED = OPS };

/* ---- numbers, computed in another way than the stand-in does ---- */

static double small_value(unsigned code, int exponent_bits, int mantissa_bits)
{
    int exponent = (int)(code >> mantissa_bits), bias = (1 << (exponent_bits - 1)) - 1;
    double mantissa = code & ((1u << mantissa_bits) - 1), one = 1u << mantissa_bits;
    return exponent ? (1 + mantissa / one) * pow(2, exponent - bias) : mantissa / one * pow(2, 1 - bias);
}

/* The code of the nearest value, the even one of two; for values that are not negative and not too large. */
static unsigned nearest(double value, int exponent_bits, int mantissa_bits)
{
    unsigned low = 0, high = (1u << (exponent_bits + mantissa_bits)) - 1;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (small_value(middle, exponent_bits, mantissa_bits) <= value)
            low = middle;
        else
            high = middle;
    }
    double below = value - small_value(low, exponent_bits, mantissa_bits);
    double above = small_value(high, exponent_bits, mantissa_bits) - value;
    return below < above || (below == above && low % 2 == 0) ? low : high;
}

/* A number as an element of a type. */
static void put(void *at, size_t i, int type, double value)
{
    unsigned char *to = (unsigned char *)at + i * type_bytes[type];
    switch (type) {
#define PUT(number, T)                                                                                       \
    case number: {                                                                                           \
        T element = (T)value;                                                                                \
        memcpy(to, &element, sizeof element);                                                                \
        break;                                                                                               \
    }
        PUT(I8, int8_t)
        PUT(U8, uint8_t)
        PUT(I32, int32_t)
        PUT(U32, uint32_t)
        PUT(I64, int64_t)
        PUT(U64, uint64_t)
        PUT(F32, float)
        PUT(F64, double)
        PUT(F16, uint16_t)
        PUT(BF16, uint16_t)
        PUT(E4M3, uint8_t)
        PUT(E5M2, uint8_t)
#undef PUT
    default: abort();
    }
}

static void put_number(void *at, size_t i, int type, double value)
{
    switch (type) {
    case F16: put(at, i, type, nearest(value, 5, 10)); break;
    case BF16: put(at, i, type, nearest(value, 8, 7)); break;
    case E4M3: put(at, i, type, nearest(value, 4, 3)); break;
    case E5M2: put(at, i, type, nearest(value, 5, 2)); break;
    default: put(at, i, type, value); break;
    }
}

/* What rank r has at i: 1, 2 or 3. */
static double input(int rank, size_t i)
{
    return (double)((i * 7 + (size_t)rank * 5 + i / 3) % 3 + 1);
}

static double combined(int op, size_t i)
{
    double value = input(0, i);
    for (int rank = 1; rank < n_ranks; rank++) {
        double other = input(rank, i);
        switch (op) {
        case PROD: value *= other; break;
        case MAX: value = fmax(value, other); break;
        case MIN: value = fmin(value, other); break;
        default: value += other; break;
        }
    }
    return op == PREMULTIPLIED ? 2 * value : op == AVG ? value / n_ranks : value;
}

static int op_handle(int op, int type, struct ncclComm *comm)
{
    unsigned char two[8];
    int handle = op;
    put_number(two, 0, type, 2);
    if (op == PREMULTIPLIED)
        REQUIRE(NCCL(ncclRedOpCreatePreMulSum)(&handle, two, type, 1, comm) == 0);
    memset(two, 0, sizeof two);
    return handle;
}

/* ---- buffers with something behind them ---- */

static unsigned char *buffer(size_t bytes)
{
    unsigned char *made = malloc(bytes + GUARD);
    REQUIRE(made);
    memset(made, 0xa5, bytes + GUARD);
    return made;
}

static void give_back(unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++)
        REQUIRE(memory[bytes + i] == 0xa5);
    free(memory);
}

/* ---- reductions ---- */

enum { REDUCE_ALL, REDUCE_ROOT, REDUCE_PARTS, REDUCE_KINDS };

static int reduce(int kind, const void *send, void *receive, size_t count, int type, int op,
                  struct ncclComm *comm)
{
    switch (kind) {
    case REDUCE_ALL: return NCCL(ncclAllReduce)(send, receive, count, type, op, comm, NULL);
    case REDUCE_ROOT: return NCCL(ncclReduce)(send, receive, count, type, op, n_ranks - 1, comm, NULL);
    default: return NCCL(ncclReduceScatter)(send, receive, count, type, op, comm, NULL);
    }
}

static void check_reduction(struct ncclComm *comm, int kind, int type, int op, size_t count, bool in_place)
{
    size_t parts = kind == REDUCE_PARTS ? (size_t)n_ranks : 1,
           first = kind == REDUCE_PARTS ? count * (size_t)me : 0;
    size_t sent = parts * count * type_bytes[type], received = count * type_bytes[type];
    unsigned char *send = buffer(sent), *apart = buffer(received);
    unsigned char *receive = in_place ? send + first * type_bytes[type] : apart, *expected = buffer(received);
    for (size_t i = 0; i < parts * count; i++)
        put_number(send, i, type, input(me, i));
    for (size_t i = 0; i < count; i++)
        put_number(expected, i, type, combined(op, first + i));
    int handle = op_handle(op, type, comm);
    bool gets = kind != REDUCE_ROOT || me == n_ranks - 1;
    REQUIRE(reduce(kind, send, gets ? receive : NULL, count, type, handle, comm) == 0);
    REQUIRE(!gets || memcmp(receive, expected, received) == 0);
    if (op == PREMULTIPLIED)
        REQUIRE(NCCL(ncclRedOpDestroy)(handle, comm) == 0);
    give_back(send, sent);
    give_back(apart, received);
    give_back(expected, received);
}

static void reductions(void)
{
    struct ncclComm *comm = comm_of_all();
    for (int kind = 0; kind < REDUCE_KINDS; kind++)
        for (int type = 0; type < TYPES; type++)
            for (int op = 0; op <= PREMULTIPLIED; op++)
                for (int in_place = 0; in_place < 2; in_place++)
                    check_reduction(comm, kind, type, op, FEW, in_place);
    for (int kind = 0; kind < REDUCE_KINDS; kind++)
        check_reduction(comm, kind, F32, SUM, MANY, kind % 2);
    over(comm);
}

static void every_reduction(void **state)
{
    (void)state;
    run_ranks(1, NULL, reductions, 0);
    run_ranks(2, NULL, reductions, 0);
    run_ranks(4, NULL, reductions, 0);
}

/* ---- numbers that are not nice ---- */

/* The sum of a multiplied with b on one rank, as bits. */
static uint64_t multiplied(struct ncclComm *comm, int type, uint64_t a, uint64_t b)
{
    int op;
    uint64_t result = 0;
    REQUIRE(NCCL(ncclRedOpCreatePreMulSum)(&op, &b, type, 0, comm) == 0);
    REQUIRE(NCCL(ncclAllReduce)(&a, &result, 1, type, op, comm, NULL) == 0);
    REQUIRE(NCCL(ncclRedOpDestroy)(op, comm) == 0);
    return result;
}

static void one_rank_numbers(void)
{
    static const struct {
        int type;
        uint64_t a, b, product;
    } rows[] = {
        {F16, 0x7bff, 0x4000, 0x7c00}, /* 65504 * 2: infinity */
        {F16, 0xfbff, 0x4000, 0xfc00},
        {F16, 0x0001, 0x3800, 0x0000}, /* the smallest, halved: a tie, to even */
        {F16, 0x0003, 0x3800, 0x0002},
        {F16, 0x0400, 0x3800, 0x0200}, /* into the subnormal ones */
        {F16, 0x7e00, 0x3c00, 0x7fff}, /* not a number */
        {F16, 0x8000, 0x3c00, 0x8000}, /* -0 */
        {F16, 0x3c01, 0x3c01, 0x3c02}, /* 1 + 2/1024 + a little */
        {BF16, 0x7f7f, 0x4000, 0x7f80},
        {BF16, 0x3f81, 0x3fc0, 0x3fc2}, /* 1.5 * 129/128: a tie, to even */
        {BF16, 0x3f83, 0x3fc0, 0x3fc4},
        {BF16, 0x0001, 0x3f80, 0x0001},
        {E4M3, 0x7e, 0x40, 0x7e}, /* 448 * 2 saturates */
        {E4M3, 0xfe, 0x40, 0xfe},
        {E4M3, 0x7f, 0x38, 0x7f}, /* not a number */
        {E4M3, 0x01, 0x38, 0x01},
        {E4M3, 0x08, 0x30, 0x04},
        {E4M3, 0x39, 0x3c, 0x3e}, /* 1.125 * 1.5 = 1.6875: a tie, to even */
        {E5M2, 0x7b, 0x40, 0x7b}, /* 57344 * 2 saturates */
        {E5M2, 0x7c, 0x3c, 0x7b}, /* and so does infinity */
        {E5M2, 0x01, 0x3c, 0x01},
        {U8, 200, 2, 144},
        {I64, (uint64_t)INT64_MIN, 2, 0},
    };
    struct ncclComm *comm = comm_of_all();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t got = multiplied(comm, rows[i].type, rows[i].a, rows[i].b);
        if (got != rows[i].product)
            fprintf(stderr, "row %zu: %#llx\n", i, (unsigned long long)got);
        REQUIRE(got == rows[i].product);
    }
    over(comm);
}

static void two_ranks_numbers(void)
{
    struct ncclComm *comm = comm_of_all();
    int8_t wraps = 100;
    REQUIRE(NCCL(ncclAllReduce)(&wraps, &wraps, 1, I8, SUM, comm, NULL) == 0);
    REQUIRE(wraps == -56);
    int32_t cut = me ? -3 : -4;
    REQUIRE(NCCL(ncclAllReduce)(&cut, &cut, 1, I32, AVG, comm, NULL) == 0);
    REQUIRE(cut == -3);
    int64_t least = me ? INT64_MIN : 7;
    REQUIRE(NCCL(ncclAllReduce)(&least, &least, 1, I64, MIN, comm, NULL) == 0);
    REQUIRE(least == INT64_MIN);
    uint64_t most = me ? UINT64_MAX : 1;
    REQUIRE(NCCL(ncclAllReduce)(&most, &most, 1, U64, MAX, comm, NULL) == 0);
    REQUIRE(most == UINT64_MAX);
    over(comm);
}

static void numbers_at_the_edge(void **state)
{
    (void)state;
    run_ranks(1, NULL, one_rank_numbers, 0);
    run_ranks(2, NULL, two_ranks_numbers, 0);
}

/* ---- moving ---- */

/* Rank r's element i of what it gives. */
static int32_t element(int rank, size_t i)
{
    return (int32_t)((size_t)rank * 1000003 + i * 17);
}

static int32_t *elements(size_t count)
{
    int32_t *made = (int32_t *)(void *)buffer(count * sizeof *made);
    for (size_t i = 0; i < count; i++)
        made[i] = element(me, i);
    return made;
}

static void check_elements(const int32_t *got, size_t count, int rank, size_t from)
{
    for (size_t i = 0; i < count; i++)
        REQUIRE(got[i] == element(rank, from + i));
}

static void done_with(int32_t *memory, size_t count)
{
    give_back((unsigned char *)memory, count * sizeof *memory);
}

static void check_broadcast(struct ncclComm *comm, size_t count, bool in_place)
{
    int root = n_ranks - 1;
    int32_t *send = elements(count), *apart = elements(count), *receive = in_place ? send : apart;
    REQUIRE(NCCL(ncclBroadcast)(me == root || in_place ? send : NULL, receive, count, I32, root, comm,
                                NULL) == 0);
    check_elements(receive, count, root, 0);
    done_with(send, count);
    done_with(apart, count);
}

static void check_gathers(struct ncclComm *comm, size_t count, bool in_place)
{
    size_t n = (size_t)n_ranks, mine = (size_t)me * count;
    for (int all = 0; all < 2; all++) {
        int32_t *receive = elements(n * count), *apart = elements(count);
        int32_t *send = in_place ? receive + mine : apart;
        memcpy(send, apart, count * sizeof *send);
        bool gets = all || me == 0;
        int result = all ? NCCL(ncclAllGather)(send, receive, count, I32, comm, NULL)
                         : NCCL(ncclGather)(send, gets ? receive : NULL, count, I32, 0, comm, NULL);
        REQUIRE(result == 0);
        for (int rank = 0; gets && rank < n_ranks; rank++)
            check_elements(receive + (size_t)rank * count, count, rank, 0);
        done_with(receive, n * count);
        done_with(apart, count);
    }
}

static void check_scatter(struct ncclComm *comm, size_t count, bool in_place)
{
    size_t n = (size_t)n_ranks, mine = (size_t)me * count;
    int32_t *send = elements(n * count), *apart = elements(count), *receive = in_place ? send + mine : apart;
    REQUIRE(NCCL(ncclScatter)(me == 1 ? send : NULL, receive, count, I32, 1, comm, NULL) == 0);
    check_elements(receive, count, 1, mine);
    done_with(send, n * count);
    done_with(apart, count);
}

static void check_all_to_all(struct ncclComm *comm, size_t count)
{
    size_t n = (size_t)n_ranks;
    int32_t *send = elements(n * count), *receive = elements(n * count);
    REQUIRE(NCCL(ncclAlltoAll)(send, receive, count, I32, comm, NULL) == 0);
    for (int rank = 0; rank < n_ranks; rank++)
        check_elements(receive + (size_t)rank * count, count, rank, (size_t)me * count);
    done_with(send, n * count);
    done_with(receive, n * count);
}

static void moves(void)
{
    static const size_t counts[] = {0, 1, FEW, 16384, 16385, MANY};
    struct ncclComm *comm = comm_of_all();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            if (counts[i])
                check_broadcast(comm, counts[i], in_place);
            check_gathers(comm, counts[i], in_place);
            check_scatter(comm, counts[i], in_place);
        }
        check_all_to_all(comm, counts[i]);
    }
    over(comm);
}

static void every_move(void **state)
{
    (void)state;
    run_ranks(2, NULL, moves, 0);
    run_ranks(4, NULL, moves, 0);
}

/* ---- messages ---- */

/* Everybody to everybody, himself too, at once; sizes differ by pair, and one is 0. */
static size_t message_size(int from, int to)
{
    return (size_t)((from * 3 + to * 5) % 7) * 9001;
}

static void exchange_all(void)
{
    struct ncclComm *comm = comm_of_all();
    int32_t *send = elements(MANY * 2), *receive[8];
    REQUIRE(NCCL(ncclGroupStart)() == 0);
    for (int peer = 0; peer < n_ranks; peer++) {
        receive[peer] = elements(message_size(peer, me));
        REQUIRE(NCCL(ncclSend)(send, message_size(me, peer), I32, peer, comm, NULL) == 0);
        REQUIRE(NCCL(ncclRecv)(receive[peer], message_size(peer, me), I32, peer, comm, NULL) == 0);
    }
    REQUIRE(NCCL(ncclGroupEnd)() == 0);
    for (int peer = 0; peer < n_ranks; peer++) {
        check_elements(receive[peer], message_size(peer, me), peer, 0);
        done_with(receive[peer], message_size(peer, me));
    }
    done_with(send, MANY * 2);
    over(comm);
}

/* Several messages of a pair come in their order, and not only in groups. */
static void in_order(void)
{
    struct ncclComm *comm = comm_of_all();
    for (int32_t i = 0; i < 50; i++) {
        int32_t value = i;
        if (me == 0)
            REQUIRE(NCCL(ncclSend)(&value, 1, I32, 1, comm, NULL) == 0);
        else
            REQUIRE(NCCL(ncclRecv)(&value, 1, I32, 0, comm, NULL) == 0);
        REQUIRE(value == i);
    }
    int32_t two[2] = {me * 10, me * 10 + 1}, got[2];
    REQUIRE(NCCL(ncclGroupStart)() == 0);
    for (int i = 0; i < 2; i++) {
        REQUIRE(NCCL(ncclRecv)(&got[i], 1, I32, !me, comm, NULL) == 0);
        REQUIRE(NCCL(ncclSend)(&two[i], 1, I32, !me, comm, NULL) == 0);
    }
    REQUIRE(NCCL(ncclGroupEnd)() == 0);
    REQUIRE(got[0] == !me * 10 && got[1] == !me * 10 + 1);
    over(comm);
}

static void messages(void **state)
{
    (void)state;
    run_ranks(2, NULL, exchange_all, 0);
    run_ranks(4, NULL, exchange_all, 0);
    run_ranks(2, NULL, in_order, 0);
}

/* Collectives and messages together, one thread with two communicators. */
static void grouped_collectives(void)
{
    struct ncclComm *comms[2];
    REQUIRE(NCCL(ncclCommInitAll)(comms, 2, NULL) == 0);
    float values[2] = {1, 2}, results[2] = {0, 0}, gathered[2][2];
    REQUIRE(NCCL(ncclGroupStart)() == 0);
    for (int i = 0; i < 2; i++) {
        REQUIRE(NCCL(ncclAllReduce)(&values[i], &results[i], 1, F32, SUM, comms[i], NULL) == 0);
        REQUIRE(NCCL(ncclAllGather)(&results[i], gathered[i], 1, F32, comms[i], NULL) == 0);
    }
    REQUIRE(results[0] == 0);
    REQUIRE(NCCL(ncclGroupEnd)() == 0);
    for (int i = 0; i < 2; i++) {
        int rank = -1, count = -1, device = -1;
        REQUIRE(results[i] == 3 && gathered[i][0] == 3 && gathered[i][1] == 3);
        REQUIRE(NCCL(ncclCommUserRank)(comms[i], &rank) == 0 && rank == i);
        REQUIRE(NCCL(ncclCommCount)(comms[i], &count) == 0 && count == 2);
        REQUIRE(NCCL(ncclCommCuDevice)(comms[i], &device) == 0 && device == i);
    }
    REQUIRE(NCCL(ncclCommDestroy)(comms[1]) == 0);
    over(comms[0]);
}

static void one_thread_with_two_ranks(void **state)
{
    (void)state;
    run_ranks(1, NULL, grouped_collectives, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reduction),
        cmocka_unit_test(numbers_at_the_edge),
        cmocka_unit_test(every_move),
        cmocka_unit_test(messages),
        cmocka_unit_test(one_thread_with_two_ranks),
    };
    return cmocka_run_group_tests(tests, load_nccl, NULL);
}
