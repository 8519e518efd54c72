/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Name look-up under a deadline. */
#ifndef GPUSYS_BASE_ADDRESS_RESOLVE_H
#define GPUSYS_BASE_ADDRESS_RESOLVE_H

#include "base/address.h"

#include <netdb.h>

/*
 * The socket addresses of a TCP address, in the resolver's order; an empty host is 127.0.0.1. Free the list
 * with freeaddrinfo. A numeric host is answered at once. A name is looked up on a helper thread: when the
 * deadline passes the thread is left behind, and cleans up after itself when the resolver lets it go. -EAGAIN
 * and -ETIMEDOUT as for streams; -EHOSTUNREACH when the resolver has no answer (domain RESOLVER).
 */
int gs_address_resolve(struct addrinfo **ret_list, const struct gs_address *address, int64_t deadline_ns,
                       struct gpusys_error *error);

#endif
