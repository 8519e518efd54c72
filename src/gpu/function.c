/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "gpu/function.h"

static const struct gs_function_row rows[] = {
    [GS_ALL_REDUCE] = {"all_reduce", true, true, false, true, true},
    [GS_BROADCAST] = {"broadcast", true, false, true, false, true},
    [GS_REDUCE] = {"reduce", true, true, true, true, false},
    [GS_ALL_GATHER] = {"all_gather", true, false, false, true, true},
    [GS_REDUCE_SCATTER] = {"reduce_scatter", true, true, false, true, true},
    [GS_ALL_TO_ALL] = {"all_to_all", true, false, false, true, true},
    [GS_GATHER] = {"gather", true, false, true, true, false},
    [GS_SCATTER] = {"scatter", true, false, true, false, true},
    [GS_SEND] = {"send", false, false, true, true, false},
    [GS_RECV] = {"recv", false, false, true, false, true},
};

const struct gs_function_row *gs_function(uint32_t function)
{
    return &rows[function < sizeof rows / sizeof rows[0] ? function : 0];
}
