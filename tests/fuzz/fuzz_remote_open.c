/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A real client against a hostile peer, from WELCOME on: the input is the control stream's script (hostile.h). */
#include "hostile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hostile script = {.control = data, .control_size = size, .fd = -1};
    hostile_start(&script);
    hostile_visit(0);
    hostile_stop();
    return 0;
}
