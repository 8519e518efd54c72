/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: its data types, and floats of 16 and 8 bits. */
#include "fake/nccl.h"

#include <math.h>
#include <string.h>

static const unsigned char type_bytes[N_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* A small float: a sign, then these. The largest exponent means infinity and not-a-number, but for e4m3, where only
 * all ones is not-a-number. */
struct small {
    int bytes, exponent_bits, mantissa_bits;
    bool saturates, has_infinity;
};

static const struct small *small_of(int type)
{
    static const struct small half = {2, 5, 10, false, true}, brain = {2, 8, 7, false, true},
                              e4m3 = {1, 4, 3, true, false}, e5m2 = {1, 5, 2, true, true};
    switch (type) {
    case FLOAT16: return &half;
    case BFLOAT16: return &brain;
    case FLOAT8E4M3: return &e4m3;
    case FLOAT8E5M2: return &e5m2;
    default: return NULL;
    }
}

size_t fake_type_bytes(int type)
{
    return type_bytes[type];
}

bool fake_type_known(int type)
{
    int types = fake_version >= 22400 ? 12 : fake_version >= 21000 ? 10 : 9;
    return type >= 0 && type < types;
}

bool fake_is_small(int type)
{
    return small_of(type) != NULL;
}

static float widen(uint32_t bits, const struct small *small)
{
    uint32_t sign = bits >> (small->exponent_bits + small->mantissa_bits) & 1;
    uint32_t mantissa = bits & ((1u << small->mantissa_bits) - 1);
    int top = (1 << small->exponent_bits) - 1, bias = top >> 1;
    int exponent = (int)(bits >> small->mantissa_bits) & top;
    float value;
    if (exponent == top && small->has_infinity)
        value = mantissa ? NAN : INFINITY;
    else if (exponent == top && mantissa == (1u << small->mantissa_bits) - 1)
        value = NAN;
    else if (exponent == 0)
        value = ldexpf((float)mantissa, 1 - bias - small->mantissa_bits);
    else
        value =
            ldexpf((float)(mantissa | 1u << small->mantissa_bits), exponent - bias - small->mantissa_bits);
    return sign ? -value : value;
}

/* The bits of the largest finite value; one more of them means more. */
static uint32_t largest(const struct small *small)
{
    uint32_t ones = (1u << (small->exponent_bits + small->mantissa_bits)) - 1;
    return small->has_infinity ? ones - (1u << small->mantissa_bits) : ones - 1;
}

static uint32_t narrow(float value, const struct small *small)
{
    uint32_t sign = (uint32_t)(signbit(value) != 0) << (small->exponent_bits + small->mantissa_bits);
    uint32_t most = largest(small);
    if (isnan(value))
        return sign | ((1u << (small->exponent_bits + small->mantissa_bits)) - 1);
    if (isinf(value))
        return sign | (small->saturates ? most : most + 1);
    if (value == 0)
        return sign;
    /* In units of the last place, of the value's own binade or of the smallest one; to nearest, ties to even. */
    int bias = ((1 << small->exponent_bits) - 1) >> 1, exponent = 0;
    (void)frexpf(value, &exponent);
    if (exponent < 2 - bias)
        exponent = 2 - bias;
    float units = rintf(ldexpf(fabsf(value), small->mantissa_bits + 1 - exponent));
    /* A carry out of the mantissa is one more in the exponent, by itself. Very large values would not fit. */
    int binade = exponent - (2 - bias);
    uint32_t bits = binade > 1 << small->exponent_bits
                        ? most + 1
                        : (uint32_t)units + ((uint32_t)binade << small->mantissa_bits);
    if (bits > most)
        bits = small->saturates ? most : most + 1;
    return sign | bits;
}

void fake_widen(float *to, const void *from, size_t count, int type)
{
    const struct small *small = small_of(type);
    const unsigned char *at = from;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits = at[i * (size_t)small->bytes];
        if (small->bytes == 2)
            memcpy(&bits, at + i * 2, 2);
        to[i] = widen(bits, small);
    }
}

void fake_narrow(void *to, const float *from, size_t count, int type)
{
    const struct small *small = small_of(type);
    unsigned char *at = to;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits = (uint16_t)narrow(from[i], small);
        if (small->bytes == 2)
            memcpy(at + i * 2, &bits, 2);
        else
            at[i] = (unsigned char)bits;
    }
}
