/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* --require, --device and --rails, as several commands have them. */
#ifndef GPUSYS_CLI_TRANSPORT_H
#define GPUSYS_CLI_TRANSPORT_H

#include <stdbool.h>

/*
 * The transport that was asked for: enum gpusys_transport. Who names devices or rails (`wants_rdma`) asks for verbs.
 * A negative errno when that makes no sense, with *ret_why for command_misused.
 */
int transport_wanted(const char *require, bool wants_rdma, const char **ret_why);

#endif
